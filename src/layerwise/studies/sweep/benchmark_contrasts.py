"""Normalize benchmark accuracies so that 0 is chance and 1 is the original model, and compare the Painters' strategies.

    s[p] = (a[p] - c) / (a[full] - c)        normalized score of plan p: a[p] is its accuracy, c is chance
    fall = depth / 10 * sum_M M (1 - s[M]) / sum_M M^2       slope over windows of M layers, per tenth of the depth

A score is undefined if the original model is not better than chance. Its interval is Fieller's (1954). One document is
added to each count of answers in which the two plans differ (Bonett and Price 2012), so that the interval has a width
even if all answers agree. The interval of a mean over benchmarks combines those of the benchmarks in quadrature (Zou
and Donner 2008). For contrasts and medians, documents and random orders are resampled within each benchmark, jointly
for all plans. The claims are `benchmark_fall` (the slope), `benchmark_strategies` (mean scores over random orders) and
`order_by_benchmark` (see `layerwise.studies.sweep.contrasts.contrast_order`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from scipy import special

from layerwise.measure.contrasts.contrast import Resampled, convert_to_seeds
from layerwise.measure.stats.grid import MIN_UNITS
from layerwise.measure.stats.statistics import Numbers, Seed, draw_counts, expanded_levels
from layerwise.results.rows import Loss, PlanRecord, Score
from layerwise.results.vocabulary import BENCHMARK, BENCHMARK_STRATEGIES, LOG_RATIO, NORMALIZED, SLOPE
from layerwise.studies.sweep.contrasts import MIN_RATIO_EFFECT, MIN_WINDOWS
from layerwise.studies.sweep.strategies import average_draws

RESAMPLES = 5_000
"""Number of resamples. It is higher than elsewhere, because medians and corrected levels depend on the tails."""

FAMILY = "painters"
"""Family whose strategies and windows are compared."""

FALL, ORDER = "benchmark_fall", "order_by_benchmark"
CLAIMS = frozenset({FALL, ORDER, BENCHMARK_STRATEGIES})
"""Claims whose contrasts are computed from benchmarks."""

REASONING, SEMANTIC = ("arc", "gsm8k"), ("hellaswag", "winogrande")
"""Prefixes of the benchmarks that the paper calls "mathematics and reasoning" and "semantic"."""

PARALLEL, ABSENT = "parallel", "skip"
MOVED = ("reverse", "random", PARALLEL)
"""Strategies that run the layers in another order."""

MIN_LEFT = 0.25
"""The cost of order is measured only on windows for which skipping leaves at least this normalized score."""

Scores = Callable[[str, Sequence[int]], Numbers]
"""Returns the normalized scores `(..., benchmarks, windows)` of a strategy for some window sizes."""


@dataclass(frozen=True, slots=True)
class BenchmarkAnswers:
    """The correct answers to each benchmark, for plans that answered all questions.

    For each benchmark, `right` is a matrix `(plans, documents)` of 0 and 1.
    """

    plans: tuple[str, ...]
    right: Mapping[str, Numbers] = field(repr=False)
    metrics: Mapping[str, str]
    chance: Mapping[str, float]

    @classmethod
    def from_rows(
        cls, rows: Mapping[str, Iterable[Loss]], plans: Sequence[str], judged: Mapping[str, tuple[str, float]]
    ) -> BenchmarkAnswers:
        """Arrange the rows of each benchmark by plan and document.

        `judged` maps each benchmark to its metric and its chance accuracy.
        """
        hits: dict[str, dict[str, dict[str, int]]] = {}
        for name, answers in rows.items():
            by_plan: dict[str, dict[str, int]] = {plan: {} for plan in plans}
            for row in answers:
                if row.plan in by_plan:
                    by_plan[row.plan][row.document] = row.hits
            if any(by_plan.values()):
                hits[name] = by_plan
        names = {name: max(map(list, by_plan.values()), key=len) for name, by_plan in hits.items()}
        kept = tuple(plan for plan in plans if all(len(hits[name][plan]) == len(names[name]) for name in hits))
        right = {
            name: np.array([[by_plan[plan][each] for each in names[name]] for plan in kept], dtype=np.float64)
            for name, by_plan in hits.items()
            if kept
        }
        return cls(kept, right, {name: judged[name][0] for name in right}, {name: judged[name][1] for name in right})


@dataclass(frozen=True, slots=True, eq=False)
class ScaledScores:
    """The normalized scores of plans, with intervals and resamples. `ScaledScores.from_answers` computes them.

    `scores` has the shape `(benchmarks, plans)`, and the intervals `ends` have the shape `(2, benchmarks, plans)`.
    `without` maps each benchmark that cannot be normalized to the reason.
    """

    plans: tuple[str, ...]
    scores: Resampled
    ends: Numbers
    documents: Mapping[str, int]
    without: Mapping[str, str]

    @classmethod
    def from_answers(
        cls, answers: BenchmarkAnswers, full: str, *, seed: Seed, resamples: int = RESAMPLES
    ) -> ScaledScores:
        values, draws, ends, without = [], [], [], {}
        documents: dict[str, int] = {}
        for number, (name, right) in enumerate(answers.right.items()):
            units = right.shape[1]
            if full not in answers.plans:
                without[name] = "the original model did not answer every question"
                continue
            if units < MIN_UNITS:
                without[name] = f"it has only {units} questions, but an interval requires {MIN_UNITS}"
                continue
            top, chance = answers.plans.index(full), answers.chance[name]
            interval = _bound_scores(right, top, chance)
            if interval is None:
                without[name] = (
                    f"the original model answers {right[top].mean():.3f} of the questions correctly, which is not "
                    f"shown to exceed chance ({chance:.3f})"
                )
                continue
            documents[name] = units
            counted = draw_counts(units, resamples, (*convert_to_seeds(seed), number))
            drawn = np.concatenate([counts @ right.T / units for counts in counted])
            values.append(_scale(right.mean(axis=1), top, chance))
            draws.append(_scale(drawn, top, chance))
            ends.append(interval)
        shape = (len(documents), len(answers.plans))
        stacked = np.stack(draws, axis=1) if draws else np.empty((resamples, *shape))
        fewest, total = min(documents.values(), default=0), sum(documents.values())
        scores = Resampled(np.array(values).reshape(shape), stacked, fewest, total, None)
        stacked_ends = np.stack(ends, axis=1) if ends else np.empty((2, *shape))
        return cls(answers.plans, scores, stacked_ends, documents, without)

    def unscaled(self) -> list[str]:
        return [f"{name} cannot be normalized: {why}" for name, why in self.without.items()]

    def rows(self, metrics: Mapping[str, str]) -> Iterator[Score]:
        if not self.documents:
            return
        value, draws = self.scores.value, self.scores.effects
        assert draws is not None, "normalized benchmarks have enough documents"
        for row, (name, documents) in enumerate(self.documents.items()):
            yield from self._rows(name, metrics[name], value[row], self.ends[:, row], documents)
        sides = np.sqrt(np.square(self.ends - value).sum(axis=1)) / len(value)
        mean, median = value.mean(axis=0), np.median(value, axis=0)
        resampled = np.quantile(np.median(draws, axis=1), expanded_levels(0.95, self.scores.units - 1), axis=0)
        # If benchmarks agree in every resample, the interval of the median is at least as wide as that of the mean.
        low, high = np.minimum(resampled[0], median - sides[0]), np.maximum(resampled[1], median + sides[1])
        yield from self._rows("all", "mean", mean, (mean - sides[0], mean + sides[1]), self.scores.documents)
        yield from self._rows("all", "median", median, (low, high), self.scores.documents)

    def _rows(self, task: str, metric: str, value: Numbers, ends: Iterable[Numbers], documents: int) -> Iterator[Score]:
        for plan, middle, low, high in zip(self.plans, value.tolist(), *map(np.ndarray.tolist, ends), strict=True):
            about: dict[str, Any] = {"task": task, "plan": plan, "condition": NORMALIZED, "documents": documents}
            yield Score(BENCHMARK, metric, middle, low, high, **about)


def _bound_scores(right: Numbers, top: int, chance: float) -> Numbers | None:
    """Return the interval `(2, plans)` of the score of every plan, or None if scores cannot be normalized.

    It contains all scores s for which a[p] - c - s (a[top] - c) is within z standard errors of 0. Its bounds are the
    roots of a quadratic equation in s.
    """
    full, units = right[top], right.shape[1] + 2
    both = right @ full
    own, whole = (right.sum(axis=1) + 1) / units - chance, (full.sum() + 1) / units - chance
    variances = (own + chance) * (1 - own - chance), (whole + chance) * (1 - whole - chance)
    covariance = both / units - (own + chance) * (whole + chance)
    z = float(special.ndtri(0.975)) ** 2 / units
    square, cross, rest = whole**2 - z * variances[1], own * whole - z * covariance, own**2 - z * variances[0]
    if whole <= 0 or square <= 0:
        return None
    reach = np.sqrt(np.maximum(cross**2 - square * rest, 0.0))
    score = _scale(right.mean(axis=1), top, chance)
    ends = np.stack([np.minimum(score, (cross - reach) / square), np.maximum(score, (cross + reach) / square)])
    ends[:, top] = 1.0
    return ends


def _scale(shares: Numbers, top: int, chance: float) -> Numbers:
    above = np.maximum(shares[..., top : top + 1] - chance, 1e-9)
    return np.asarray((shares - chance) / above)


@dataclass(frozen=True, slots=True, eq=False)
class StrategyScores:
    """The normalized scores `(curves, benchmarks)` of the Painters' strategies, averaged over random orders."""

    names: tuple[str, ...]
    curves: Mapping[tuple[str, int], int]
    scores: Resampled
    draws: Mapping[tuple[str, int], int]

    @classmethod
    def from_scaled(cls, scaled: ScaledScores, records: Iterable[PlanRecord], *, seed: Seed) -> StrategyScores:
        """Average the scores of each strategy and window over draws.

        Windows of one layer are excluded, because most strategies give the same plan for one layer.
        """
        row_of = {plan: row for row, plan in enumerate(scaled.plans)}
        plans: dict[tuple[str, int], list[int]] = defaultdict(list)
        for record in records:
            if record.family == FAMILY and record.affected > 1 and record.plan in row_of:
                plans[record.strategy, record.affected].append(row_of[record.plan])
        chance, own = np.random.default_rng(seed), scaled.scores
        assert own.effects is not None, "normalized benchmarks have enough documents"
        value = np.empty((len(plans), len(scaled.documents)))
        effects = np.empty((len(own.effects), *value.shape))
        for at, drawn in enumerate(plans.values()):
            value[at] = own.value[:, drawn].mean(axis=-1)
            effects[:, at] = average_draws(own.effects[..., drawn], chance)
        curves = {key: at for at, key in enumerate(plans)}
        draws = {key: len(drawn) for key, drawn in plans.items()}
        return cls(tuple(scaled.documents), curves, replace(own, value=value, effects=effects), draws)

    def windows(self, *strategies: str) -> tuple[int, ...]:
        sizes = [{size for name, size in self.curves if name == strategy} for strategy in strategies]
        return tuple(sorted(set.intersection(*sizes))) if sizes else ()

    def row(self, claim: str, metric: str, statistic: Callable[[Scores], Numbers], **settings: Any) -> Score:
        def of_scores(scores: Numbers) -> Numbers:
            def read(strategy: str, windows: Sequence[int]) -> Numbers:
                return np.stack([scores[..., self.curves[strategy, size], :] for size in windows], axis=-1)

            return np.asarray(statistic(read))

        return self.scores.row(claim, metric, of_scores, **settings)


def contrast_benchmarks(
    scaled: ScaledScores, records: Iterable[PlanRecord], depth: int, *, seed: Seed = 0
) -> list[Score]:
    if not scaled.documents:
        return []
    scores = StrategyScores.from_scaled(scaled, records, seed=seed)
    return [*_average_draws(scores), *_compare_falls(scores, depth), *_compare_orders(scores)]


def _average_draws(scores: StrategyScores) -> Iterator[Score]:
    middles: dict[tuple[str, str], Callable[[Numbers], Any]] = {
        **{(name, NORMALIZED): partial(np.take, indices=at, axis=-1) for at, name in enumerate(scores.names)},
        ("all", "mean"): partial(np.mean, axis=-1),
        ("all", "median"): partial(np.median, axis=-1),
    }

    def left(read: Scores, strategy: str, size: int, middle: Callable[[Numbers], Any]) -> Numbers:
        return np.asarray(middle(read(strategy, [size])[..., 0]))

    for strategy, size in (curve for curve, draws in scores.draws.items() if draws > 1):
        for (task, metric), middle in middles.items():
            statistic = partial(left, strategy=strategy, size=size, middle=middle)
            columns: dict[str, Any] = {"task": task, "family": FAMILY, "strategy": strategy, "affected": size}
            row = scores.row(BENCHMARK_STRATEGIES, metric, statistic, **columns)
            yield replace(row, low=None, high=None, mde=None) if row.low == row.high else row


def _compare_falls(scores: StrategyScores, depth: int) -> Iterator[Score]:
    measured = {name: windows for name, _ in scores.curves if len(windows := scores.windows(name)) >= MIN_WINDOWS}
    tasks = {name: slice(at, at + 1) for at, name in enumerate(scores.names)} | {"all": slice(None)}

    def fall(read: Scores, strategy: str, windows: Sequence[int]) -> Numbers:
        sizes = np.array(windows, dtype=float)
        return np.asarray(depth / 10 * ((1 - read(strategy, windows)) @ sizes) / (sizes @ sizes))

    def mean(read: Scores, strategy: str, at: slice) -> Numbers:
        return np.asarray(fall(read, strategy, measured[strategy])[..., at].mean(axis=-1))

    for strategy in measured:
        for task, at in tasks.items():
            yield scores.row(FALL, SLOPE, partial(mean, strategy=strategy, at=at), task=task, strategy=strategy)


def _compare_orders(scores: StrategyScores) -> Iterator[Score]:
    names, measured = scores.names, scores.windows(*MOVED, ABSENT)
    reasoning, semantic = (
        [at for at, name in enumerate(names) if name.startswith(kind)] for kind in (REASONING, SEMANTIC)
    )
    if not (reasoning and semantic and measured):
        return
    task, against = (" and ".join(names[at] for at in kind) for kind in (reasoning, semantic))
    columns: dict[str, Any] = {"task": task, "against": against}
    at_skip = {size: scores.scores.value[scores.curves[ABSENT, size]] for size in measured}
    windows = [size for size in measured if all(at_skip[size][at] >= MIN_LEFT for at in (*reasoning, *semantic))]
    yield Score("contrast", "windows", float(len(windows)), claim=ORDER, **columns)
    if len(windows) < MIN_WINDOWS:
        return

    def lose(read: Scores, at: Sequence[int]) -> tuple[Numbers, Numbers]:
        moved, absent = (
            np.mean([(1 - read(each, windows))[..., list(at), :].mean(axis=(-2, -1)) for each in strategies], axis=0)
            for strategies in (MOVED, (ABSENT,))
        )
        return moved, absent

    def less(read: Scores) -> Numbers:
        return np.asarray(lose(read, reasoning)[0] - lose(read, semantic)[0])

    def log_ratio(read: Scores) -> Numbers:
        return _take_log_ratio(*lose(read, reasoning)) - _take_log_ratio(*lose(read, semantic))

    yield scores.row(ORDER, "order_less", less, **columns)
    yield scores.row(ORDER, LOG_RATIO, log_ratio, **columns)


def _take_log_ratio(first: Numbers, second: Numbers) -> Numbers:
    return np.asarray(np.log(np.maximum(first, MIN_RATIO_EFFECT)) - np.log(np.maximum(second, MIN_RATIO_EFFECT)))
