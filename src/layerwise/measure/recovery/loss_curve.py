"""Loss curves of fine-tuning, compared with those of the undamaged control trained on the same batches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from layerwise.measure.stats import statistics
from layerwise.measure.stats.estimate import Bounded
from layerwise.results.rows import Score
from layerwise.results.vocabulary import RECOVERY, UNDAMAGED

RUNS = "recovery_run"
"""Measure of the stored loss curves, from which the rows of measure `recovery` are computed."""


@dataclass(frozen=True, slots=True)
class LossCurveKey:
    """Identifies a run of fine-tuning; `layer` is None if the full model was trained without damage."""

    layer: int | None
    damage: str
    scope: str
    seed: int

    @property
    def columns(self) -> dict[str, Any]:
        return {"layer": self.layer, "condition": self.damage, "variant": self.scope, "seed": self.seed}


@dataclass(frozen=True, slots=True)
class LossCurve:
    steps: tuple[int, ...]
    nll: tuple[float, ...]

    @property
    def has_diverged(self) -> bool:
        return len(self.nll) < len(self.steps)


def curve_rows(run: LossCurveKey, trajectory: LossCurve) -> list[Score]:
    """Return a row `nll` per step and, if the run diverged, a row with the step of the first non-finite loss."""
    rows = [
        Score(RUNS, "nll", value, step=step, **run.columns)
        for step, value in zip(trajectory.steps, trajectory.nll, strict=False)
    ]
    if trajectory.has_diverged:
        first = float(trajectory.steps[len(trajectory.nll)])
        rows.append(Score(RUNS, "diverged", first, **run.columns))
    return rows


def read_curves(rows: Iterable[Score], steps: tuple[int, ...]) -> dict[LossCurveKey, LossCurve]:
    """Read the complete runs in `rows` that were evaluated at exactly `steps`."""
    values: dict[LossCurveKey, dict[int, float]] = {}
    ends: dict[LossCurveKey, int] = {}
    for row in rows:
        if row.measure != RUNS:
            continue
        run = LossCurveKey(row.layer, str(row.condition), str(row.variant), int(row.seed or 0))
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
"""Minimum number of seeds for an interval."""


@dataclass(frozen=True, slots=True)
class RecoveryTime:
    """Recovery of one run; `area` is None if it diverged, and `initial_damage` if its first loss is not finite."""

    steps: int
    censored: bool
    area: float | None
    initial_damage: float | None


def recovery_time(damaged: LossCurve, control: LossCurve, tolerance: float) -> RecoveryTime:
    """Compare a damaged run with its control by gap(t) = NLL_damaged(t) - NLL_control(t) in nats/token.

    `steps` is the first evaluated step after which the gap stays within `tolerance`. If there is none, or if the run
    diverged, it is censored. `area` is the integral of the gap over steps (trapezoidal rule).

    >>> control = LossCurve((0, 4, 8, 12), (3.0, 3.0, 3.0, 3.0))
    >>> recovery_time(LossCurve((0, 4, 8, 12), (3.5, 3.0, 3.25, 3.0)), control, tolerance=0.05)
    RecoveryTime(steps=12, censored=False, area=2.0, initial_damage=0.5)
    """
    gap = [loss - other for loss, other in zip(damaged.nll, control.nll, strict=False)]
    is_complete = len(gap) == len(damaged.steps)
    recovered = next((at for at in range(len(gap), 0, -1) if gap[at - 1] > tolerance), 0)
    censored = not is_complete or recovered == len(gap)
    return RecoveryTime(
        steps=damaged.steps[-1] if censored else damaged.steps[recovered],
        censored=censored,
        area=float(np.trapezoid(gap, damaged.steps)) if is_complete else None,
        initial_damage=gap[0] if gap else None,
    )


def flat_curve(control: LossCurve) -> LossCurve:
    """Return a constant curve at the first loss of `control`, which is the loss of the original model."""
    return LossCurve(control.steps, control.nll[:1] * len(control.steps))


def recovery_rows(
    about: Mapping[str, Any],
    times: Sequence[RecoveryTime],
    controls: Sequence[RecoveryTime],
    published: Sequence[RecoveryTime],
    cap: int,
    *evaluated: int,
) -> list[Score]:
    """Summarize the recovery of one layer from one kind of damage by means and intervals over seeds.

    See `recovery` for the rows. `times` holds the recovery times of damaged runs relative to their controls, `controls`
    those of the undamaged runs relative to the original model, and `published` those of the damaged runs relative to
    the original model. The mean of min(steps, cap) is the restricted mean survival time (Royston and Parmar 2013,
    section 2).
    """
    damage = [each.initial_damage for each in times if each.initial_damage is not None]
    areas, control_areas = ([each.area for each in runs if each.area is not None] for runs in (times, controls))
    summaries = [
        ("initial_damage", None, mean_over_seeds(damage)),
        ("steps", None, mean_over_seeds([each.steps for each in times], cap)),
        ("steps", UNDAMAGED, mean_over_seeds([each.steps for each in controls], cap)),
        ("area", None, mean_over_seeds(areas)),
        ("area", UNDAMAGED, mean_over_seeds(control_areas)),
        ("censored", None, _share([each.censored for each in times])),
        ("steps_to_original", None, mean_over_seeds([each.steps for each in published], cap)),
        ("censored_original", None, _share([each.censored for each in published])),
    ]
    documents, tokens = evaluated
    return [
        Score(RECOVERY, metric, *numbers, documents=documents, tokens=tokens, against=against, **about)
        for metric, against, numbers in summaries
        if numbers is not None
    ]


def mean_over_seeds(values: Sequence[float], cap: float | None = None) -> Bounded | None:
    """Return the mean over seeds with a Student t interval clipped to 0..`cap`, or None if there are no values."""
    if not values:
        return None
    value, low, high = statistics.mean_interval(values, min_units=MIN_SEEDS)
    if cap is not None and low is not None and high is not None:
        low, high = max(0.0, low), min(float(cap), high)
    return value, low, high


def _share(flags: Sequence[bool]) -> Bounded:
    return statistics.wilson(sum(flags), len(flags)).row()
