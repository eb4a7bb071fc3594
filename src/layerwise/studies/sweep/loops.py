"""Measure how the best number of loops grows with the number of parallel layers (arXiv 2407.09298, section 3.7).

Rows of the claim `loop_count` (figure 10); the best count is chosen again on every resample:
    slope, at_end            least-squares slope of the best count over windows; windows whose best is the greatest
    best_loops, best_gain    best count and best gain of the window of `amount` layers
    gain:loops, gain-loops   cost at the best gain compared with the best count, relative and in nats/token, chosen on
                             one half of the documents, compared on the other; the null is a gain of k in one pass
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from layerwise.measure.stats.statistics import Numbers
from layerwise.results.rows import Score
from layerwise.studies.sweep.strategies import Costs, Curve, Statistic, Strategies, relative

Named = tuple[str, float | None]
"""The metric of a contrast, and the size of its window where it is of one."""

LOOP_COUNT = "loop_count"
LOOPED, GAINED = "looped", "gain_sweep"
FEWEST_COUNTS = 3
"""Loop counts below which nothing can be said of the best one."""

FEWEST_WINDOWS = 2
"""A claim about windows is of two at least: models of 5 layers and more."""


def loop_count(strategies: Strategies) -> list[Score]:
    """The rows of the claim, see the module; none without several loop counts on several windows."""
    counts = _numbers(strategies, LOOPED)
    loops = [(LOOPED, name) for name in counts.values()]
    windows = strategies.windows(*loops, best=True)
    if len(counts) < FEWEST_COUNTS or len(windows) < FEWEST_WINDOWS:
        return []
    at_counts = {size: dict(zip(counts, loops, strict=True)) for size in windows}
    at_gains = {size: _gains(strategies, size) for size in windows}
    named = _growth(at_counts)
    if all(at_gains.values()):
        named |= {("best_gain", float(size)): _best_at(size, gains) for size, gains in at_gains.items()}
    rows = [strategies.row(LOOP_COUNT, metric, of, amount=size) for (metric, size), of in named.items()]
    if all(at_gains.values()) and strategies.has_halves:
        compared = _compared(at_gains, at_counts).items()
        rows += [strategies.row_by_halves(LOOP_COUNT, metric, of, amount=size) for (metric, size), of in compared]
    return rows


def _growth(at_counts: Mapping[int, Mapping[int, Curve]]) -> dict[Named, Statistic]:
    windows = tuple(at_counts)
    centred = np.array(windows, dtype=float) - np.mean(windows)
    last = max(at_counts[windows[0]])
    each = {size: _best_at(size, curves) for size, curves in at_counts.items()}

    def best(costs: Costs) -> Numbers:
        return np.stack([of_window(costs) for of_window in each.values()], axis=-1)

    return {
        ("slope", None): lambda costs: np.asarray(best(costs) @ centred / (centred @ centred)),
        ("at_end", None): lambda costs: np.asarray((best(costs) == last).sum(axis=-1)),
        **{("best_loops", float(size)): of_window for size, of_window in each.items()},
    }


def _best_at(size: int, curves: Mapping[int, Curve]) -> Statistic:
    numbers = np.array(list(curves), dtype=np.float64)

    def best(costs: Costs) -> Numbers:
        return np.asarray(numbers[_at_window(costs, size, list(curves.values())).argmin(axis=0)])

    return best


def _compared(
    gains: Mapping[int, Mapping[int, Curve]], loops: Mapping[int, Mapping[int, Curve]]
) -> dict[Named, Callable[[Costs, Costs], Numbers]]:
    def means(choose: Costs, report: Costs, sizes: Iterable[int]) -> tuple[Numbers, Numbers]:
        gained, looped = (
            np.asarray(np.mean([_chosen(choose, report, size, curves[size]) for size in sizes], axis=0))
            for curves in (gains, loops)
        )
        return gained, looped

    def difference(*sizes: int) -> Callable[[Costs, Costs], Numbers]:
        return lambda choose, report: np.subtract(*means(choose, report, sizes))

    return {
        ("gain:loops", None): lambda choose, report: relative(*means(choose, report, gains)),
        ("gain-loops", None): difference(*gains),
        **{("gain-loops", float(size)): difference(size) for size in gains},
    }


def _chosen(choose: Costs, report: Costs, size: int, curves: Mapping[int, Curve]) -> Numbers:
    own, other = (_at_window(costs, size, list(curves.values())) for costs in (choose, report))
    return np.asarray(np.take_along_axis(other, own.argmin(axis=0)[None], axis=0)[0])


def _at_window(costs: Costs, size: int, curves: Sequence[Curve]) -> Numbers:
    return np.stack([costs(curve, [size])[..., 0] for curve in curves])


def _numbers(strategies: Strategies, family: str) -> dict[int, str]:
    names = {name for owner, name in strategies.rows if owner == family}
    return dict(sorted((int(name.partition("=")[2]), name) for name in names))


def _gains(strategies: Strategies, size: int) -> dict[int, Curve]:
    measured = _numbers(strategies, GAINED).items()
    return {number: (GAINED, name) for number, name in measured if size in strategies.rows[GAINED, name]}
