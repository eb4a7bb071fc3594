"""Compute the contrasts that decide the questions of "Transformer Layers as Painters" (arXiv 2407.09298).

The cost of a strategy is its mean over the published windows of several layers, in nats/token. Two costs compare by
2 (a - b) / (|a| + |b|). `loop_count` selects the best number of loops again on every resample (figure 10):
    slope, at_end            least-squares slope of the best count over windows; number of windows at the largest count
    best_loops, best_gain    best count and best gain of a window of `affected` layers
    gain-loops               cost at the best gain (in one pass) minus that at the best count, in nats/token, selected
                             on one half of the documents and compared on the other
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, combinations

import numpy as np

from layerwise.measure.stats.grid import arrange
from layerwise.measure.stats.statistics import Numbers, Seed
from layerwise.plan import Plan
from layerwise.plan.painters import PAINTERS_LOOPS, PAINTERS_RANKING
from layerwise.results.rows import Loss, PlanRecord, Score
from layerwise.results.vocabulary import CONTRAST, GAINED, LOOP_COUNT, LOOPED
from layerwise.studies.sweep.strategies import Costs, Curve, Statistic, Strategies, mean_cost, relative, relative_to

CONTRASTED = frozenset({"painters", LOOPED})
"""The families that are compared; `gain_sweep` is a null."""

MIN_WINDOWS = 2
"""Minimum number of windows to compare: models of 5 layers or more."""

MIN_COUNTS = 3
"""Minimum number of loop counts to select the best one from."""

NARROW = 4
SMALLEST = 1e-12
"""Lower bound of a divisor, in nats/token."""

ORDERS = ("reverse", "random")
RANKED_LEVEL = 0.99
"""Confidence level of each of the 15 pairs of the ranking."""

RANKING = "ranking"
PAIRS: Mapping[str, Sequence[tuple[str, str]]] = {
    "same_function": (("middle_repeat", "skip"),),
    "any_order": tuple(("skip", order) for order in ORDERS),
    "parallel": (("skip", "parallel"), ("parallel", "reverse")),
    "looping": (("parallel", "looped_parallel"),),
    RANKING: tuple((harsher, milder) for milder, harsher in combinations(PAINTERS_RANKING, 2)),
}
"""The harsher and the milder strategy of each comparison, by claim."""

COMPARED: Mapping[str, tuple[str, ...]] = {
    **{claim: tuple(dict.fromkeys(chain.from_iterable(pairs))) for claim, pairs in PAIRS.items()},
    "all_needed": ("skip",),
}
"""The strategies that are compared on the same windows, by claim."""


def painters_contrasts(
    losses: Iterable[Loss], records: Iterable[PlanRecord], depth: int, *, seed: Seed = 0, unigram: float | None = None
) -> list[Score]:
    """Return the rows of every claim whose plans the sweep contains.

    Args:
        losses: Losses of the plans and of the original model.
        unigram: Loss of a unigram model in nats/token. Windows at which a plan does worse are excluded; `left_out`
            counts them, and `windows` the others.

    Raises:
        MeasureError: If the losses cannot be arranged (`layerwise.measure.stats.grid.arrange`).
    """
    strategies = Strategies.of(arrange(losses), records, str(Plan.identity(depth)), seed=seed, unigram=unigram)
    return rows(strategies, depth)


def rows(strategies: Strategies, depth: int, claims: Iterable[str] = (*COMPARED, LOOP_COUNT)) -> list[Score]:
    compute: dict[str, Callable[[], Iterator[Score]]] = {
        **{claim: partial(_compare_pairs, strategies, claim) for claim in PAIRS},
        "all_needed": partial(_compare_widths, strategies, depth),
        LOOP_COUNT: partial(loop_count, strategies),
    }
    return [row for claim in claims for row in (*compute[claim](), *_count_windows(strategies, claim))]


def _count_windows(strategies: Strategies, claim: str) -> Iterator[Score]:
    looped = [curve for curve in strategies.rows if curve[0] == LOOPED]
    curves = looped if claim == LOOP_COUNT else map(_painters, COMPARED[claim])
    measured = strategies.measured(*curves, best=claim == LOOP_COUNT).values()
    counts = {"left_out": len(measured) - sum(measured), "windows": sum(measured)}
    for name, count in counts.items() if counts["left_out"] else ():
        yield Score(CONTRAST, name, float(count), claim=claim)


def _compare_pairs(strategies: Strategies, claim: str) -> Iterator[Score]:
    windows = _windows(strategies, claim)
    if not windows:
        return
    means = {name: mean_cost(_painters(name), windows) for name in COMPARED[claim]}
    for harsher, milder in PAIRS[claim]:
        level = RANKED_LEVEL if claim == RANKING else 0.95
        yield strategies.row(claim, f"{harsher}:{milder}", _less(means[harsher], means[milder]), level=level)
    if claim == "same_function":
        yield strategies.row(claim, "middle_repeat", means["middle_repeat"])
    elif claim == "any_order":
        for order in ORDERS:
            yield strategies.row(claim, order, _share(means[order], means["skip"]))
    elif claim == "looping":
        curves = ("gain_sweep", f"gain={PAINTERS_LOOPS}"), _painters("looped_parallel")
        shared = strategies.windows(*curves)
        if len(shared) >= MIN_WINDOWS:
            gain, looped = (mean_cost(curve, shared) for curve in curves)
            yield strategies.row(claim, "gain:looped_parallel", _less(gain, looped))
    elif claim == RANKING:
        for name, mean in means.items():
            yield strategies.row(claim, name, mean)
        harms = [means[name] for name in PAINTERS_RANKING]
        yield _widen_by_a_pair(strategies.row(claim, "tau", partial(_tau, harms)))


def _tau(harms: Sequence[Statistic], costs: Costs) -> Numbers:
    drawn = [harm(costs) for harm in harms]
    return np.asarray(np.mean([np.sign(harsher - milder) for milder, harsher in combinations(drawn, 2)], axis=0))


def _widen_by_a_pair(tau: Score) -> Score:
    """Bound a tau, which is the same in every resample of clear differences, by one pair less."""
    if tau.low is None or tau.high is None:
        return tau
    pair = 2 / len(PAIRS[RANKING])
    return replace(tau, low=max(-1.0, min(tau.low, tau.value - pair)), high=min(1.0, max(tau.high, tau.value + pair)))


def _compare_widths(strategies: Strategies, depth: int) -> Iterator[Score]:
    windows, skip = _windows(strategies, "all_needed"), _painters("skip")
    if not windows:
        return
    widest = windows[-1]
    narrow = [size for size in windows[:-1] if size <= max(windows[0], depth / NARROW)]

    def saved(costs: Costs) -> Numbers:
        few, whole = costs(skip, narrow).sum(axis=-1) / sum(narrow), costs(skip, [widest])[..., 0] / widest
        return np.asarray(1 - few / np.maximum(whole, SMALLEST))

    def rise(costs: Costs) -> Numbers:
        return np.asarray(costs(skip, [widest])[..., 0] - costs(skip, narrow).mean(axis=-1))

    yield strategies.row("all_needed", "saved", saved)
    yield strategies.row("all_needed", "rise", rise)


def _painters(strategy: str) -> Curve:
    return "painters", strategy


def _windows(strategies: Strategies, claim: str) -> tuple[int, ...]:
    windows = strategies.windows(*map(_painters, COMPARED[claim]))
    return windows if len(windows) >= MIN_WINDOWS else ()


def _less(harsher: Statistic, milder: Statistic) -> Statistic:
    return lambda costs: relative(harsher(costs), milder(costs))


def _share(part: Statistic, other: Statistic) -> Statistic:
    def share(costs: Costs) -> Numbers:
        own, against = part(costs), other(costs)
        return relative_to(own, own, against)

    return share


def loop_count(strategies: Strategies) -> Iterator[Score]:
    """Return the rows about the best number of loops; none without several loop counts on several windows."""
    loops = _numbered(strategies, LOOPED)
    windows = strategies.windows(*loops.values(), best=True)
    if len(loops) < MIN_COUNTS or len(windows) < MIN_WINDOWS:
        return
    centered = np.array(windows, dtype=float) - np.mean(windows)

    def best(costs: Costs) -> Numbers:
        return np.stack([_find_best(costs, size, loops) for size in windows], axis=-1)

    yield strategies.row(LOOP_COUNT, "slope", lambda costs: np.asarray(best(costs) @ centered / (centered @ centered)))
    yield strategies.row(LOOP_COUNT, "at_end", lambda costs: np.asarray((best(costs) == max(loops)).sum(axis=-1)))
    gained = _numbered(strategies, GAINED).items()
    gains = {size: {number: curve for number, curve in gained if size in strategies.rows[curve]} for size in windows}
    numbered = {"best_loops": dict.fromkeys(windows, loops), **({"best_gain": gains} if all(gains.values()) else {})}
    for metric, by_window in numbered.items():
        for size, curves in by_window.items():
            statistic = partial(_find_best, size=size, curves=curves)
            yield strategies.row(LOOP_COUNT, metric, statistic, affected=size)
    if not all(gains.values()) or not strategies.has_halves:
        return

    def subtract(choose: Costs, report: Costs, size: int) -> Numbers:
        gained, looped = (_report_best(choose, report, size, curves) for curves in (gains[size], loops))
        return np.subtract(gained, looped)

    for size in windows:
        yield strategies.row_by_halves(LOOP_COUNT, "gain-loops", partial(subtract, size=size), affected=size)


def _numbered(strategies: Strategies, family: str) -> dict[int, Curve]:
    curves = {int(name.partition("=")[2]): (owner, name) for owner, name in strategies.rows if owner == family}
    return dict(sorted(curves.items()))


def _at_window(costs: Costs, size: int, curves: Mapping[int, Curve]) -> Numbers:
    return np.stack([costs(curve, [size])[..., 0] for curve in curves.values()])


def _find_best(costs: Costs, size: int, curves: Mapping[int, Curve]) -> Numbers:
    numbers = np.array(list(curves), dtype=np.float64)
    return np.asarray(numbers[_at_window(costs, size, curves).argmin(axis=0)])


def _report_best(choose: Costs, report: Costs, size: int, curves: Mapping[int, Curve]) -> Numbers:
    own, other = (_at_window(costs, size, curves) for costs in (choose, report))
    return np.asarray(np.take_along_axis(other, own.argmin(axis=0)[None], axis=0)[0])
