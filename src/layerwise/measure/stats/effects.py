"""From losses to effects: paired differences of each plan with a baseline, as rows of measure `effect`.

    delta_nll, nll                 nats/token, plan minus baseline, and of the plan itself
    null_band                      how far from zero a plan without effect could be, all plans together
    token_accuracy, exact_match    share of scored tokens, and of windows, that were the arg-max; delta_exact_match

95 % intervals over documents or windows (`resampling_unit`), none with fewer than 8 windows, or where all are equal.
`p`: see `assess_effects`; `mde`: 80 % power at 5 % after Holm over the plans of a task. Tasks are strata of `all`.
`compare_conditions` does the same for arms (`12=skip`), corrected by metric, with the band `against no_effect`.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from layerwise.errors import MeasureError, near_matches
from layerwise.measure.stats import statistics
from layerwise.measure.stats.estimate import SampleEstimate
from layerwise.measure.stats.grid import MIN_UNITS, Grid, Strata, arrange
from layerwise.measure.stats.paired_metrics import mcnemar_detectable, mcnemar_p
from layerwise.measure.stats.statistics import FLIPS_PER_PLAN as FLIPS_PER_PLAN
from layerwise.measure.stats.statistics import Numbers, Seed, StratumLabels
from layerwise.results.rows import Loss, Score
from layerwise.results.vocabulary import EFFECT, NO_EFFECT

POOLED = "all"


def compute_effects(
    losses: Iterable[Loss],
    baseline: str,
    *,
    seed: int = 0,
    answer_tasks: Collection[str] = (),
    by_task: bool = True,
    resamples: int = 10_000,
) -> list[Score]:
    """Compare every plan in `losses` with the plan `baseline`; see the module for the rows.

    Rows are ordered by task (`all` last, alone without `by_task`), metric and plan, and depend on the losses and the
    seed alone. Raises `MeasureError` without the baseline, for plans on different windows (see `complete`), and for an
    unknown answer task.
    """
    grid = arrange(losses)
    if baseline not in grid.plans:
        raise MeasureError(f"The baseline {baseline!r} is not among the plans: {near_matches(baseline, grid.plans)}.")
    for task in answer_tasks:
        if task not in grid.tasks():
            raise MeasureError(f"There is no task {task!r}: {near_matches(task, grid.tasks())}.")
    parts = {task: grid.of_task(task) for task in grid.tasks()} if by_task else {}
    if len(parts) != 1 and POOLED not in parts:
        parts[POOLED] = grid
    scores: list[Score] = []
    for task, part in parts.items():
        study = _TaskEffects(
            task=task,
            grid=part,
            strata=Strata.label_grid(part),
            baseline=part.plans.index(baseline),
            documents=part.documents(),
            tokens=int(part.tokens.sum()),
            # A task's rows must not depend on which other tasks there are: its name, not its index, goes in.
            seed=(seed, zlib.crc32(task.encode())),
            resamples=resamples,
        )
        scores += study.losses()
        if task in answer_tasks:
            scores += study.answers()
    return scores


@dataclass(frozen=True, slots=True)
class _TaskEffects:
    task: str
    grid: Grid
    strata: StratumLabels
    baseline: int
    documents: int
    tokens: int
    seed: Seed
    resamples: int

    def losses(self) -> list[Score]:
        nll, hits, tokens = (self.grid.by_unit(values) for values in (self.grid.nll, self.grid.hits, self.grid.tokens))
        # The difference is taken window by window before anything is summed, which keeps small effects exact.
        deltas = self.grid.by_unit(self.grid.nll - self.grid.nll[self.baseline])
        if tokens.size < MIN_UNITS or statistics.are_equal(nll, tokens):
            total = tokens.sum()
            return [
                *self._bare("delta_nll", deltas.sum(axis=1) / total, self._others()),
                *self._bare("nll", nll.sum(axis=1) / total),
                *self._bare("token_accuracy", hits.sum(axis=1) / total),
            ]
        compared, bands = self._assessed("delta_nll", deltas, tokens, self._bootstrap(deltas, tokens))
        return [
            *compared,
            *(self._score("null_band", plan, band) for plan, band in bands.items() if np.isfinite(band)),
            *self._estimated("nll", statistics.student_interval(nll, tokens, strata=self.strata)),
            *self._estimated("token_accuracy", statistics.student_interval(hits, tokens, strata=self.strata)),
        ]

    def answers(self) -> list[Score]:
        right = (self.grid.hits == self.grid.tokens).astype(np.float64)
        exact, windows = self.grid.by_unit(right), self.grid.by_unit(np.ones(len(self.grid.cells)))
        changes = exact - exact[self.baseline]
        if windows.size < MIN_UNITS:
            total = windows.sum()
            return [
                *self._bare("exact_match", exact.sum(axis=1) / total),
                *self._bare("delta_exact_match", changes.sum(axis=1) / total, self._others()),
            ]
        if (windows == 1).all():
            # One answer a unit: closed forms for proportions, which stay honest when all answers agree.
            own = statistics.wilson(exact.sum(axis=1), windows.size)
            gained, lost = (changes > 0).sum(axis=1), (changes < 0).sum(axis=1)
            difference = statistics.paired_proportions(gained, lost, windows.size)
            others, counts = self._others(), list(zip(gained.tolist(), lost.tolist(), strict=True))
            p = [mcnemar_p(*counts[plan]) for plan in others]
            mde = [mcnemar_detectable(*counts[plan], windows.size, len(others)) for plan in others]
            compared = self._compared("delta_exact_match", difference, p, mde)
        else:
            own, difference = self._bootstrap(exact, windows), self._bootstrap(changes, windows)
            compared, _ = self._assessed("delta_exact_match", changes, windows, difference)
        return [*self._estimated("exact_match", own), *compared]

    def _assessed(
        self, metric: str, changes: Numbers, below: Numbers, estimate: SampleEstimate[Numbers]
    ) -> tuple[list[Score], dict[int, float]]:
        others = self._others()
        if not others:
            return [], {}
        test = statistics.assess_effects(
            changes[others], below, seed=self.seed, flips=self.resamples, strata=self.strata
        )
        bands = dict(zip(others, test.band.tolist(), strict=True))
        return self._compared(metric, estimate, test.p, test.mde), bands

    def _compared(self, metric: str, estimate: SampleEstimate[Numbers], p: ArrayLike, mde: ArrayLike) -> list[Score]:
        numbers = (np.asarray(p).tolist(), statistics.holm(p).tolist(), np.asarray(mde).tolist())
        return [
            self._score(
                metric,
                plan,
                estimate.value[plan],
                low=float(estimate.low[plan]),
                high=float(estimate.high[plan]),
                p=own,
                p_adjusted=adjusted,
                mde=least,
            )
            for plan, own, adjusted, least in zip(self._others(), *numbers, strict=True)
        ]

    def _estimated(self, metric: str, estimate: SampleEstimate[Numbers]) -> list[Score]:
        return [
            self._score(metric, plan, estimate.value[plan], low=float(low), high=float(high))
            for plan, (low, high) in enumerate(zip(estimate.low, estimate.high, strict=True))
        ]

    def _bare(self, metric: str, values: Numbers, plans: Iterable[int] | None = None) -> list[Score]:
        chosen = range(len(self.grid.plans)) if plans is None else plans
        return [self._score(metric, plan, values[plan]) for plan in chosen]

    def _score(self, metric: str, plan: int, value: float, **evidence: Any) -> Score:
        return Score(
            EFFECT,
            metric,
            float(value),
            task=self.task,
            plan=self.grid.plans[plan],
            documents=self.documents,
            tokens=self.tokens,
            **evidence,
        )

    def _others(self) -> list[int]:
        return [plan for plan in range(len(self.grid.plans)) if plan != self.baseline]

    def _bootstrap(self, numerators: Numbers, denominators: Numbers) -> SampleEstimate[Numbers]:
        return statistics.paired_bootstrap(
            numerators, denominators, seed=self.seed, resamples=self.resamples, strata=self.strata
        )


@dataclass(frozen=True, slots=True)
class ConditionLosses:
    """The losses under `key` are reported as `metric` with these `columns` (`layer`, `plan`, ...).

    Arms of one metric and `family` are corrected together.
    """

    key: str
    metric: str
    columns: Mapping[str, Any] = field(default_factory=dict)
    family: Hashable = None


def compare_conditions(
    measure: str,
    losses: Iterable[Loss],
    baseline: str,
    arms: Sequence[ConditionLosses],
    *,
    seed: int,
    by_task: bool = True,
) -> list[Score]:
    """Return rows of `arms` with losses on every window, metric by metric; without `by_task` only those of `all`."""
    rows_of: dict[str, list[Loss]] = defaultdict(list)
    for row in losses:
        rows_of[row.plan].append(row)
    families: dict[tuple[str, Hashable], list[ConditionLosses]] = defaultdict(list)
    for arm in arms:
        if len(rows_of[arm.key]) == len(rows_of[baseline]):
            families[arm.metric, arm.family].append(arm)
    scores: list[Score] = []
    for group in families.values():
        chosen = [*rows_of[baseline], *(row for arm in group for row in rows_of[arm.key])]
        rows = compute_effects(chosen, baseline, seed=seed, by_task=by_task)
        scores += _condition_rows(measure, group, rows)
    return scores


def describe_test(units: int, comparisons: int) -> str | None:
    """Say that so few units decide among so many plans by their intervals; `None` where sign flips do.

    >>> describe_test(8, 6)
    >>> describe_test(8, 90)
    "8 documents or windows are too few for sign flips over 90 plans: Student's interval, corrected for 90, decides"
    """
    if statistics.flips_can_decide(units, comparisons):
        return None
    return (
        f"{units} documents or windows are too few for sign flips over {comparisons:,} plans: Student's interval, "
        f"corrected for {comparisons:,}, decides"
    )


def _condition_rows(measure: str, arms: Sequence[ConditionLosses], rows: Sequence[Score]) -> list[Score]:
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
