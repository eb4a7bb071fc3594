"""Effects of plans and interventions: paired loss differences with intervals and tests."""

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
    """Compare the loss of every plan in `losses` with that of the plan `baseline`, paired by document.

    The metrics are `nll` and `delta_nll` in nats/token, `token_accuracy`, `null_band` (half-width of the band around 0
    that contains all plans without effect in 95 % of studies), and for `answer_tasks` also `exact_match` and
    `delta_exact_match`. The 95 % intervals are over documents (windows if there are fewer than 8 documents) and
    stratified by task, the label of a group of documents. p-values are Holm-adjusted over the plans of a task. Losses
    are tested with `assess_effects`, and answers with McNemar's test if no document has several.

    Args:
        losses: One row per plan and window.
        baseline: The plan to compare with.
        seed: Seed of the resampling.
        answer_tasks: Tasks in which every window is a prompt with an answer.
        by_task: Whether to return rows for each task as well as for all tasks pooled (`all`).
        resamples: Number of bootstrap resamples and of sign flips.

    Returns:
        Rows of measure `effect`, ordered by task (`all` last), metric and plan.

    Raises:
        MeasureError: If the baseline is missing, plans ran on different windows, or an answer task is unknown.
    """
    grid = arrange(losses)
    if baseline not in grid.plans:
        raise MeasureError(f"The baseline {baseline!r} is not among the plans: {near_matches(baseline, grid.plans)}.")
    for task in answer_tasks:
        if task not in grid.tasks():
            raise MeasureError(f"The text has no task {task!r}: {near_matches(task, grid.tasks())}.")
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
            # Seeded by name, not index, so that a task's rows do not depend on the other tasks.
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
        # Subtract before summing, which keeps small effects exact.
        deltas = self.grid.by_unit(self.grid.nll - self.grid.nll[self.baseline])
        if tokens.size < MIN_UNITS or statistics.are_equal(nll, tokens):
            total = tokens.sum()
            return [
                *self._value_rows("delta_nll", deltas.sum(axis=1) / total, self._others()),
                *self._value_rows("nll", nll.sum(axis=1) / total),
                *self._value_rows("token_accuracy", hits.sum(axis=1) / total),
            ]
        rows, bands = self._assess("delta_nll", deltas, tokens, self._bootstrap(deltas, tokens))
        return [
            *rows,
            *(self._score("null_band", plan, band) for plan, band in bands.items() if np.isfinite(band)),
            *self._interval_rows("nll", statistics.student_interval(nll, tokens, strata=self.strata)),
            *self._interval_rows("token_accuracy", statistics.student_interval(hits, tokens, strata=self.strata)),
        ]

    def answers(self) -> list[Score]:
        right = (self.grid.hits == self.grid.tokens).astype(np.float64)
        exact, windows = self.grid.by_unit(right), self.grid.by_unit(np.ones(len(self.grid.cells)))
        changes = exact - exact[self.baseline]
        if windows.size < MIN_UNITS:
            total = windows.sum()
            return [
                *self._value_rows("exact_match", exact.sum(axis=1) / total),
                *self._value_rows("delta_exact_match", changes.sum(axis=1) / total, self._others()),
            ]
        if (windows == 1).all():
            # One answer per unit: closed forms have a width even where all answers agree.
            accuracy = statistics.wilson(exact.sum(axis=1), windows.size)
            gained, lost = (changes > 0).sum(axis=1), (changes < 0).sum(axis=1)
            difference = statistics.paired_proportions(gained, lost, windows.size)
            others, counts = self._others(), list(zip(gained.tolist(), lost.tolist(), strict=True))
            p = [mcnemar_p(*counts[plan]) for plan in others]
            mde = [mcnemar_detectable(*counts[plan], windows.size, len(others)) for plan in others]
            rows = self._test_rows("delta_exact_match", difference, p, mde)
        else:
            accuracy, difference = self._bootstrap(exact, windows), self._bootstrap(changes, windows)
            rows, _ = self._assess("delta_exact_match", changes, windows, difference)
        return [*self._interval_rows("exact_match", accuracy), *rows]

    def _assess(
        self, metric: str, changes: Numbers, below: Numbers, estimate: SampleEstimate[Numbers]
    ) -> tuple[list[Score], dict[int, float]]:
        others = self._others()
        if not others:
            return [], {}
        test = statistics.assess_effects(
            changes[others], below, seed=self.seed, flips=self.resamples, strata=self.strata
        )
        bands = dict(zip(others, test.band.tolist(), strict=True))
        return self._test_rows(metric, estimate, test.p, test.mde), bands

    def _test_rows(self, metric: str, estimate: SampleEstimate[Numbers], p: ArrayLike, mde: ArrayLike) -> list[Score]:
        numbers = (np.asarray(p).tolist(), statistics.holm(p).tolist(), np.asarray(mde).tolist())
        return [
            self._score(
                metric,
                plan,
                estimate.value[plan],
                low=float(estimate.low[plan]),
                high=float(estimate.high[plan]),
                p=p_value,
                p_adjusted=adjusted,
                mde=detectable,
            )
            for plan, p_value, adjusted, detectable in zip(self._others(), *numbers, strict=True)
        ]

    def _interval_rows(self, metric: str, estimate: SampleEstimate[Numbers]) -> list[Score]:
        return [
            self._score(metric, plan, estimate.value[plan], low=float(low), high=float(high))
            for plan, (low, high) in enumerate(zip(estimate.low, estimate.high, strict=True))
        ]

    def _value_rows(self, metric: str, values: Numbers, plans: Iterable[int] | None = None) -> list[Score]:
        return [self._score(metric, plan, values[plan]) for plan in (range(len(values)) if plans is None else plans)]

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
    """One condition to compare. `key` is the plan name of its losses; its result rows have this `metric` and `columns`.

    p-values are corrected over the conditions with the same metric and `family`.
    """

    key: str
    metric: str
    columns: Mapping[str, Any] = field(default_factory=dict)
    family: Hashable = None


def compare_conditions(
    measure: str,
    losses: Iterable[Loss],
    baseline: str,
    conditions: Sequence[ConditionLosses],
    *,
    seed: int,
    by_task: bool = True,
) -> list[Score]:
    """Compare the losses of `conditions` with those of `baseline`, and return rows of `measure`.

    A condition without the column `against` also gets a row with its null band (see `compute_effects`), in which
    `against` is `no_effect`. Conditions that lack losses on some windows are omitted. If `by_task` is False, rows are
    only for all tasks pooled.
    """
    rows_by_key: dict[str, list[Loss]] = defaultdict(list)
    for row in losses:
        rows_by_key[row.plan].append(row)
    families: dict[tuple[str, Hashable], list[ConditionLosses]] = defaultdict(list)
    for condition in conditions:
        if len(rows_by_key[condition.key]) == len(rows_by_key[baseline]):
            families[condition.metric, condition.family].append(condition)
    scores: list[Score] = []
    for group in families.values():
        compared = [*rows_by_key[baseline], *(row for condition in group for row in rows_by_key[condition.key])]
        rows = compute_effects(compared, baseline, seed=seed, by_task=by_task)
        scores += _condition_rows(measure, group, rows)
    return scores


def describe_test(units: int, comparisons: int) -> str | None:
    """Explain why a t test replaces sign-flip tests for this many units and plans, or return None if it does not.

    >>> describe_test(8, 6)
    >>> describe_test(8, 90)
    '8 documents or windows are too few for sign-flip tests of 90 plans, so a t test corrected for 90 plans is used'
    """
    if statistics.flips_can_decide(units, comparisons):
        return None
    return (
        f"{units} documents or windows are too few for sign-flip tests of {comparisons:,} plans, so a t test "
        f"corrected for {comparisons:,} plans is used"
    )


def _condition_rows(measure: str, conditions: Sequence[ConditionLosses], rows: Sequence[Score]) -> list[Score]:
    tasks = {score.task for score in rows}
    if POOLED not in tasks:
        rows = [*rows, *(replace(score, task=POOLED) for score in rows)]
    by_key = {condition.key: condition for condition in conditions}
    scores = []
    for score in (score for key in by_key for score in rows if score.plan == key):
        condition = by_key[str(score.plan)]
        columns = {"measure": measure, "metric": condition.metric, "claim": None, "plan": None, **condition.columns}
        if score.metric == "delta_nll":
            scores.append(replace(score, **columns))
        elif score.metric == "null_band" and condition.columns.get("against") is None:  # nulls have no null themselves
            band = {"value": 0.0, "low": -score.value, "high": score.value, "against": NO_EFFECT}
            scores.append(replace(score, **{**columns, **band}))
    return scores
