"""The loss during fine-tuning, compared with its twin: the undamaged model trained on the same batches.

With gap(t) = NLL_damaged(t) - NLL_twin(t):

    steps   the first evaluation from which on gap stays within a tolerance; censored if outside it at the last one
    area    the integral of gap over the steps, by trapezoids, in nat-steps

The mean of min(time, cap) over seeds is the restricted mean survival time (Royston and Parmar 2013, section 2).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from layerwise.measure.stats import statistics
from layerwise.results.rows import Score
from layerwise.results.vocabulary import RECOVERY, TWIN

RUNS = "recovery_run"
"""The measure of the raw rows: one evaluation of one fine-tuning each. What `recovery` reports follows from them."""


@dataclass(frozen=True, slots=True)
class LossCurveKey:
    """A run: `layer` (none: twin of the whole model), `damage` (`twin`: undamaged), what is trained, `seed` from 0."""

    layer: int | None
    damage: str
    scope: str
    seed: int

    @property
    def columns(self) -> dict[str, Any]:
        return {"layer": self.layer, "condition": self.damage, "arm": self.scope, "seed": self.seed}


@dataclass(frozen=True, slots=True)
class LossCurve:
    steps: tuple[int, ...]
    nll: tuple[float, ...]

    @property
    def has_diverged(self) -> bool:
        return len(self.nll) < len(self.steps)


def curve_rows(run: LossCurveKey, trajectory: LossCurve) -> list[Score]:
    """Return rows `nll` with the step as `amount`; a diverged run ends with the step of `diverged`."""
    rows = [
        Score(RUNS, "nll", value, step=step, **run.columns)
        for step, value in zip(trajectory.steps, trajectory.nll, strict=False)
    ]
    if trajectory.has_diverged:
        first = float(trajectory.steps[len(trajectory.nll)])
        rows.append(Score(RUNS, "diverged", first, **run.columns))
    return rows


def read_curves(rows: Iterable[Score], steps: tuple[int, ...]) -> dict[LossCurveKey, LossCurve]:
    """The runs that are complete in `rows`, evaluated at exactly `steps`; what belongs to other steps is left out."""
    values: dict[LossCurveKey, dict[int, float]] = {}
    ends: dict[LossCurveKey, int] = {}
    for row in rows:
        if row.measure != RUNS:
            continue
        run = LossCurveKey(row.layer, str(row.condition), str(row.arm), int(row.seed or 0))
        by_step = values.setdefault(run, {})
        if row.metric == "nll":
            by_step[row.step or 0] = row.value
        else:
            ends[run] = int(row.value)
    runs = {}
    for run, by_step in values.items():
        expected = tuple(step for step in steps if run not in ends or step < ends[run])
        if tuple(sorted(by_step)) == expected and ends.get(run, steps[0]) in steps:
            runs[run] = LossCurve(steps, tuple(by_step[step] for step in expected))
    return runs


MIN_SEEDS = 3
"""Below this an interval over seeds says nothing."""


@dataclass(frozen=True, slots=True)
class RecoveryTime:
    """One run compared with another.

    `steps` is the cap if `censored`; `area` is `None` for a diverged run, `initial_damage` for a non-finite start.
    """

    steps: int
    censored: bool
    area: float | None
    initial_damage: float | None


def recovery_time(damaged: LossCurve, twin: LossCurve, tolerance: float) -> RecoveryTime:
    """Compare a run with its twin; it recovers when the gap comes to stay within `tolerance`, in nats/token.

    >>> twin = LossCurve((0, 4, 8, 12), (3.0, 3.0, 3.0, 3.0))
    >>> recovery_time(LossCurve((0, 4, 8, 12), (3.5, 3.0, 3.25, 3.0)), twin, tolerance=0.05)
    RecoveryTime(steps=12, censored=False, area=2.0, initial_damage=0.5)
    """
    gap = [own - other for own, other in zip(damaged.nll, twin.nll, strict=False)]
    is_whole = len(gap) == len(damaged.steps)
    recovered = next((at for at in range(len(gap), 0, -1) if gap[at - 1] > tolerance), 0)
    censored = not is_whole or recovered == len(gap)
    return RecoveryTime(
        steps=damaged.steps[-1] if censored else damaged.steps[recovered],
        censored=censored,
        area=float(np.trapezoid(gap, damaged.steps)) if is_whole else None,
        initial_damage=gap[0] if gap else None,
    )


def flat_curve(twin: LossCurve) -> LossCurve:
    return LossCurve(twin.steps, twin.nll[:1] * len(twin.steps))


def recovery_rows(
    about: Mapping[str, Any],
    times: Sequence[RecoveryTime],
    twins: Sequence[RecoveryTime],
    published: Sequence[RecoveryTime],
    cap: int,
    *evaluated: int,
) -> list[Score]:
    """Return the rows of one layer, damage and scope, over seeds: see `layerwise.measure.recovery.recovery`.

    `about` are their columns, `published` the times relative to the original model, `evaluated` documents and tokens.
    """
    damage = [each.initial_damage for each in times if each.initial_damage is not None]
    areas, twin_areas = ([each.area for each in of if each.area is not None] for of in (times, twins))
    summaries = [
        ("initial_damage", None, mean_over_seeds(damage)),
        ("steps", None, mean_over_seeds([each.steps for each in times], cap)),
        ("steps", TWIN, mean_over_seeds([each.steps for each in twins], cap)),
        ("area", None, mean_over_seeds(areas)),
        ("area", TWIN, mean_over_seeds(twin_areas)),
        ("censored", None, _share([each.censored for each in times])),
        ("steps_to_untouched", None, mean_over_seeds([each.steps for each in published], cap)),
        ("censored_untouched", None, _share([each.censored for each in published])),
    ]
    documents, tokens = evaluated
    return [
        Score(RECOVERY, metric, *numbers, documents=documents, tokens=tokens, against=against, **about)
        for metric, against, numbers in summaries
        if numbers is not None
    ]


Numbers = tuple[float, float | None, float | None]


def mean_over_seeds(values: Sequence[float], cap: float | None = None) -> Numbers | None:
    """Mean and Student interval over seeds, within 0 and `cap` where there is one; `None` where there is no value."""
    if not values:
        return None
    value, low, high = statistics.mean_interval(values, fewest=MIN_SEEDS)
    if cap is not None and low is not None and high is not None:
        low, high = max(0.0, low), min(float(cap), high)
    return value, low, high


def _share(flags: Sequence[bool]) -> Numbers:
    return statistics.wilson(sum(flags), len(flags)).row()
