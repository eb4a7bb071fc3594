"""Paired differences of many arms against one baseline, as `Score` rows with their interval, p-value and null band.

An *arm* is whatever was done to the model (`12=skip`, a plan); arms of one metric (and family) are compared on
the same windows and corrected together, so "Holm over the layers" means exactly the layers of that metric.
For every arm and task there are two rows:

    <metric>             nats per token, arm minus baseline; interval, p, Holm's p over the metric's arms, mde
    against no_effect    how far arms without any effect would stray, all of the metric at once: low and high around 0

The statistics are those of `layerwise.measure.stats.effects`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from layerwise.measure.stats.effects import POOLED, effects
from layerwise.results.rows import Loss, Score
from layerwise.results.vocabulary import NO_EFFECT


@dataclass(frozen=True, slots=True)
class ArmLosses:
    """The losses under `key` are reported as `metric`; `columns` of the row say what was done: `layer`, `plan`, ...

    Arms of one metric and `family` are compared and corrected together.
    """

    key: str
    metric: str
    columns: Mapping[str, Any] = field(default_factory=dict)
    family: Hashable = None


def differences(
    measure: str,
    losses: Iterable[Loss],
    baseline: str,
    arms: Sequence[ArmLosses],
    *,
    seed: int,
    by_task: bool = True,
    resamples: int = 10_000,
) -> list[Score]:
    """Rows of `arms`, metric by metric in the order given; arms without losses on every window are left out.

    Without `by_task` only the rows of all tasks together (`all`) are made.
    """
    rows_of: dict[str, list[Loss]] = defaultdict(list)
    for row in losses:
        rows_of[row.plan].append(row)
    families: dict[tuple[str, Hashable], list[ArmLosses]] = defaultdict(list)
    for arm in arms:
        if len(rows_of[arm.key]) == len(rows_of[baseline]):
            families[arm.metric, arm.family].append(arm)
    scores: list[Score] = []
    for group in families.values():
        chosen = [*rows_of[baseline], *(row for arm in group for row in rows_of[arm.key])]
        rows = effects(chosen, baseline, seed=seed, by_task=by_task, resamples=resamples)
        scores += _renamed(measure, group, rows)
    return scores


def _renamed(measure: str, arms: Sequence[ArmLosses], rows: Sequence[Score]) -> list[Score]:
    """The rows of `effects` in the words of the measure; one task alone is also its own pool."""
    tasks = {score.task for score in rows}
    if POOLED not in tasks:
        rows = [*rows, *(replace(score, task=POOLED) for score in rows)]
    by_key = {arm.key: arm for arm in arms}
    order = {key: position for position, key in enumerate(by_key)}
    scores = []
    for score in sorted((score for score in rows if score.plan in order), key=lambda score: order[str(score.plan)]):
        arm = by_key[str(score.plan)]
        about: dict[str, Any] = {"measure": measure, "metric": arm.metric, "claim": None, "plan": None, **arm.columns}
        if score.metric == "delta_nll":
            scores.append(replace(score, **about))
        elif score.metric == "null_band" and arm.columns.get("against") is None:  # a null has no null of its own
            band = {"value": 0.0, "low": -score.value, "high": score.value, "against": NO_EFFECT}
            scores.append(replace(score, **{**about, **band}))
    return scores
