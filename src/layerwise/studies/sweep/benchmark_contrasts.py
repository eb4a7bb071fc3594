"""Contrasts of normalized scores for the Painters' claims about benchmarks (arXiv 2407.09298, sections 3.3 to 3.8).

fall = depth / 10 * sum_M M (1 - s[M]) / sum_M M^2, the slope over windows of M layers, per tenth of the depth
benchmark_fall   slope            the fall; of task "all" the mean over benchmarks
fragile          log_ratio        log(fall on the benchmark / mean fall on the others)
benchmark_strategies     mean over draws of the score at a window
shallowest_on_benchmarks relative 2 (a - b) / (|a| + |b|) of two falls; the milder one is in `against`
order_by_benchmark                order_less, log_ratio as in `contrasts.order`; `windows` is their number
repeat_at_chance                  mean score of middle_repeat and skip over windows of half the depth and more
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from layerwise.measure.stats.statistics import Numbers, Seed
from layerwise.plan.painters import PAINTERS_RANKING
from layerwise.results.rows import PlanRecord, Score
from layerwise.results.vocabulary import BENCHMARK_STRATEGIES, LOG_RATIO, NORMALISED, RELATIVE, SLOPE
from layerwise.studies.sweep.benchmark_scores import FAMILY, Scaled, Scores, StrategyScores
from layerwise.studies.sweep.loops import FEWEST_WINDOWS
from layerwise.studies.sweep.order_contrasts import SMALLEST
from layerwise.studies.sweep.painters_contrasts import MILDEST, STEEPER
from layerwise.studies.sweep.strategies import relative

FALL, FRAGILE, SHALLOWEST = "benchmark_fall", "fragile", "shallowest_on_benchmarks"
ORDER, REPEAT = "order_by_benchmark", "repeat_at_chance"
CLAIMS = frozenset({FALL, FRAGILE, SHALLOWEST, ORDER, REPEAT, BENCHMARK_STRATEGIES})
"""The subjects of the rows that are made of benchmarks."""

LEVEL = 0.95
REASONING = ("arc", "gsm8k")
SEMANTIC = ("hellaswag", "winogrande")
"""How the names of the benchmarks begin that the paper calls mathematics and reasoning, and "semantic"."""

PARALLEL = "parallel"
MOVED = ("reverse", "random", PARALLEL)
ABSENT = "skip"
"""The strategies by which the question of order is asked: the layers at other places, and not at all."""

LEFT = 0.25
"""Where absence leaves less than this of the scale of a benchmark, there is nothing left that order could cost."""


def benchmark_contrasts(scaled: Scaled, records: Iterable[PlanRecord], depth: int, *, seed: Seed = 0) -> list[Score]:
    if not scaled.documents:
        return []
    scores = StrategyScores.of(scaled, records, seed=seed)
    return [
        *falls(scores, depth),
        *fragile(scores, depth),
        *shallowest(scores, depth),
        *order(scores),
        *repeat(scores, depth),
        *means_over_draws(scores),
    ]


def means_over_draws(scores: StrategyScores) -> Iterator[Score]:
    def left(read: Scores, at: tuple[str, int], middle: Callable[[Numbers], Any]) -> Numbers:
        return np.asarray(middle(read(at[0], [at[1]])[..., 0]))

    middles: dict[tuple[str, str], Callable[[Numbers], Any]] = {
        **{(name, NORMALISED): partial(_nth, at) for at, name in enumerate(scores.names)},
        ("all", "mean"): partial(np.mean, axis=-1),
        ("all", "median"): partial(np.median, axis=-1),
    }
    for (strategy, size), draws in scores.draws.items():
        for (task, metric), middle in middles.items() if draws > 1 else ():
            statistic = partial(left, at=(strategy, size), middle=middle)
            columns: dict[str, Any] = {"task": task, "part": FAMILY, "condition": strategy, "amount": float(size)}
            row = scores.row(BENCHMARK_STRATEGIES, metric, statistic, **columns)
            yield replace(row, low=None, high=None, mde=None) if row.low == row.high else row


def _nth(at: int, scores: Numbers) -> Numbers:
    return scores[..., at]


def falls(scores: StrategyScores, depth: int) -> Iterator[Score]:
    def mean(read: Scores, strategy: str, at: slice) -> Numbers:
        return np.asarray(_fall(read, strategy, scores.windows(strategy), depth)[..., at].mean(axis=-1))

    tasks = {name: slice(at, at + 1) for at, name in enumerate(scores.names)} | {"all": slice(None)}
    for strategy in _measured(scores):
        for task, at in tasks.items():
            yield scores.row(FALL, SLOPE, partial(mean, strategy=strategy, at=at), task=task, condition=strategy)


def fragile(scores: StrategyScores, depth: int) -> Iterator[Score]:
    names, strategies = scores.names, _measured(scores)
    if len(names) < 2 or PARALLEL not in strategies:
        return

    def faster(read: Scores, at: int) -> Numbers:
        fall = _fall(read, PARALLEL, scores.windows(PARALLEL), depth)
        others = np.delete(fall, at, axis=-1).mean(axis=-1)
        return np.asarray(np.log(np.maximum(fall[..., at], SMALLEST)) - np.log(np.maximum(others, SMALLEST)))

    level = _corrected(len(names) * len(strategies))
    for at, name in enumerate(names):
        yield scores.row(FRAGILE, LOG_RATIO, partial(faster, at=at), task=name, level=level, condition=PARALLEL)


def shallowest(scores: StrategyScores, depth: int) -> Iterator[Score]:
    windows = scores.windows(*PAINTERS_RANKING)
    if len(windows) < FEWEST_WINDOWS:
        return
    pairs = [(harsher, milder) for milder in MILDEST for harsher in STEEPER]

    def apart(read: Scores, harsher: str, milder: str) -> Numbers:
        first, second = (_fall(read, each, windows, depth).mean(axis=-1) for each in (harsher, milder))
        return relative(first, second)

    for harsher, milder in pairs:
        statistic = partial(apart, harsher=harsher, milder=milder)
        level = _corrected(len(pairs))
        yield scores.row(SHALLOWEST, RELATIVE, statistic, level=level, condition=harsher, against=milder)


def order(scores: StrategyScores) -> Iterator[Score]:
    names = scores.names
    kinds = [[at for at, name in enumerate(names) if name.startswith(kind)] for kind in (REASONING, SEMANTIC)]
    compared = sorted({at for kind in kinds for at in kind}) if all(kinds) else list(range(len(names)))
    windows = [
        size
        for size in scores.windows(*MOVED, ABSENT)
        if all(scores.scores.value[scores.curves[ABSENT, size]][at] >= LEFT for at in compared)
    ]
    reasoning, semantic = kinds
    task, against = (
        (" and ".join(names[at] for at in reasoning), " and ".join(names[at] for at in semantic))
        if all(kinds)
        else ("all", None)
    )
    if scores.windows(*MOVED, ABSENT):
        yield Score("contrast", "windows", float(len(windows)), claim=ORDER, task=task, against=against)
    if len(windows) < FEWEST_WINDOWS:
        return

    def ratio(read: Scores, at: Sequence[int]) -> Numbers:
        moved, absent = _kind(read, windows, at)
        return np.asarray(np.log(np.maximum(moved, SMALLEST)) - np.log(np.maximum(absent, SMALLEST)))

    for at, name in enumerate(names):
        yield scores.row(ORDER, LOG_RATIO, partial(ratio, at=[at]), task=name, level=_corrected(len(names)))
    if against is not None:
        statistics: tuple[tuple[str, Callable[[Scores], Numbers]], ...] = (
            ("order_less", lambda read: _kind(read, windows, reasoning)[0] - _kind(read, windows, semantic)[0]),
            (LOG_RATIO, lambda read: ratio(read, reasoning) - ratio(read, semantic)),
        )
        for metric, statistic in statistics:
            yield scores.row(ORDER, metric, statistic, task=task, against=against)


def repeat(scores: StrategyScores, depth: int) -> Iterator[Score]:
    wide = [size for size in scores.windows("middle_repeat", ABSENT) if 2 * size >= depth]

    def left(read: Scores, strategy: str) -> Numbers:
        return np.asarray(read(strategy, wide).mean(axis=(-2, -1)))

    if wide:
        for strategy in ("middle_repeat", ABSENT):
            yield scores.row(REPEAT, strategy, partial(left, strategy=strategy))


def _measured(scores: StrategyScores) -> tuple[str, ...]:
    return tuple(each for each in scores.strategies if len(scores.windows(each)) >= FEWEST_WINDOWS)


def _fall(read: Scores, strategy: str, windows: Sequence[int], depth: int) -> Numbers:
    sizes = np.array(windows, dtype=float)
    return np.asarray(depth / 10 * ((1 - read(strategy, windows)) @ sizes) / (sizes @ sizes))


def _kind(read: Scores, windows: Sequence[int], at: Sequence[int]) -> tuple[Numbers, Numbers]:
    def lost(strategy: str) -> Numbers:
        return np.asarray((1 - read(strategy, windows))[..., list(at), :].mean(axis=(-2, -1)))

    return np.asarray(np.mean([lost(each) for each in MOVED], axis=0)), lost(ABSENT)


def _corrected(tests: int) -> float:
    return 1 - (1 - LEVEL) / tests
