"""From the trajectories of several seeds to rows: how fast a layer recovers, and who never did.

Every damaged run is set beside its twin (`recovery_time`), and the seeds of one layer, damage and scope become one row
a metric. A censored run counts with the cap, so that the mean of the steps is the restricted mean survival time and a
lower bound of the mean; the share of censored runs stands beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from layerwise.measure.recovery.loss_curve import LossCurve, area, gaps, steps_to_recover
from layerwise.measure.stats import statistics
from layerwise.results.rows import Score
from layerwise.results.vocabulary import RECOVERY, TWIN

FEWEST_SEEDS = 3
"""Below this an interval over seeds says nothing."""


@dataclass(frozen=True, slots=True)
class RecoveryTime:
    """One run beside the one it is compared with.

    `steps` is the time to recover, or the cap where `censored`. A run that diverged has no `area`, and one that
    started from a loss that was not finite no `initial_damage`.
    """

    steps: int
    censored: bool
    area: float | None
    initial_damage: float | None


def recovery_time(damaged: LossCurve, twin: LossCurve, tolerance: float) -> RecoveryTime:
    """How `damaged` fares beside `twin`; recovered is a gap of at most `tolerance` nats a token that stays so."""
    gap = gaps(damaged, twin)
    recovered = steps_to_recover(damaged.steps, gap, tolerance)
    cap = damaged.steps[-1]
    return RecoveryTime(
        steps=cap if recovered is None else recovered,
        censored=recovered is None,
        area=area(damaged.steps, gap),
        initial_damage=gap[0] if gap else None,
    )


def twin_recovery_time(twin: LossCurve, tolerance: float) -> RecoveryTime:
    """How the twin fares beside the model before any step."""
    return recovery_time(twin, untouched(twin), tolerance)


def untouched(twin: LossCurve) -> LossCurve:
    """The model before any step, which its twin begins as."""
    return LossCurve(twin.steps, twin.nll[:1] * len(twin.steps))


def recovery_rows(
    about: Mapping[str, Any],
    times: Sequence[RecoveryTime],
    twins: Sequence[RecoveryTime],
    cap: int,
    documents: int,
    tokens: int,
) -> list[Score]:
    """The rows of one layer, damage and scope, over seeds: see `layerwise.measure.recovery.recovery`.

    `about` are their columns: the `layer`, the damage as `condition`, what was trained after it as `arm`.
    """
    damage = [each.initial_damage for each in times if each.initial_damage is not None]
    areas = [each.area for each in times if each.area is not None]
    twin_areas = [each.area for each in twins if each.area is not None]
    summaries = [
        ("initial_damage", None, _mean(damage)),
        ("steps", None, _mean([each.steps for each in times], cap)),
        ("steps", TWIN, _mean([each.steps for each in twins], cap)),
        ("area", None, _mean(areas)),
        ("area", TWIN, _mean(twin_areas)),
        ("censored", None, _share([each.censored for each in times])),
    ]
    return [
        Score(RECOVERY, metric, *numbers, documents=documents, tokens=tokens, against=against, **about)
        for metric, against, intervals in summaries
        for numbers in intervals
    ]


def published_rows(
    about: Mapping[str, Any], times: Sequence[RecoveryTime], cap: int, documents: int, tokens: int
) -> list[Score]:
    """The rows of the published count, against the untouched model: its steps, and the share that did not get there."""
    summaries = [
        ("steps_to_untouched", _mean([each.steps for each in times], cap)),
        ("censored_untouched", _share([each.censored for each in times])),
    ]
    return [
        Score(RECOVERY, metric, *numbers, documents=documents, tokens=tokens, **about)
        for metric, intervals in summaries
        for numbers in intervals
    ]


def damage_rows(about: Mapping[str, Any], damage: Sequence[float], documents: int, tokens: int) -> list[Score]:
    """The one row of a layer that was not trained: its damage, over seeds, is too small to recover from."""
    return [
        Score(RECOVERY, "initial_damage", *numbers, documents=documents, tokens=tokens, **about)
        for numbers in _mean(damage)
    ]


Numbers = tuple[float, float | None, float | None]


def _mean(values: Sequence[float], cap: float | None = None) -> Iterator[Numbers]:
    """Mean and Student interval over seeds, within 0 and `cap` where there is one; nothing where there is no value."""
    if not values:
        return
    value, low, high = statistics.mean_of(values, fewest=FEWEST_SEEDS)
    if cap is not None and low is not None and high is not None:
        low, high = max(0.0, low), min(float(cap), high)
    yield value, low, high


def _share(flags: Sequence[bool]) -> Iterator[Numbers]:
    yield statistics.wilson(sum(flags), len(flags)).row()
