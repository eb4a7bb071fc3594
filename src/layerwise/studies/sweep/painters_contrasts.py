"""Contrasts that decide the claims of "Transformer Layers as Painters" (Sun et al., arXiv 2407.09298).

The cost of a strategy (`condition`) is its mean over the published windows of several layers, in nats/token. Two costs
compare by 2 (a - b) / (|a| + |b|); `against` is the milder one. `graceful` is the excess of step i of the costs at
M[1] < ... < M[n] layers over the best parabola through no cost at M[0]:
    excess[i] = (cost[i] - fit[i]) - (cost[i - 1] - fit[i - 1])        fit[i] = a (M[i] - M[0]) + b (M[i] - M[0])^2
`loop_count` chooses the best number of loops again on every resample (section 3.7, figure 10):
    slope, at_end            least-squares slope of the best count over windows; windows whose best is the greatest
    best_loops, best_gain    best count and best gain of the window of `amount` layers
    gain:loops, gain-loops   cost at the best gain compared with the best count, relative and in nats/token, chosen on
                             one half of the documents, compared on the other; the null is a gain of k in one pass
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
from layerwise.results.vocabulary import CONTRAST, EXCESS, GAINED, LESS, LOOP_COUNT, LOOPED, RELATIVE, SLOPE
from layerwise.studies.sweep.strategies import Costs, Curve, Statistic, Strategies, mean_cost, relative, relative_to

CONTRASTED = frozenset({"painters", LOOPED})
"""The families that decide claims; `gain_sweep` is a null beside them."""

MIN_WINDOWS = 2
"""A claim about windows needs two at least: models of 5 layers and more."""

MIN_COUNTS = 3
"""Loop counts below which nothing can be said of the best one."""

MIN_STEPS = 5
"""With fewer, a parabola follows an abrupt step at either end too well."""

STEP_SHARE = 0.1
"""The smallest step, as a share of the depth: many small steps would hide an abrupt one."""

NARROW = 4
SMALLEST = 1e-12
"""What stands for a cost that is not positive where something is divided by it, nats per token."""

ORDERS = ("reverse", "random")
MILDEST = ("random", "looped_parallel")
"""The strategies of which the paper says that quality falls the least steeply (section 3.8)."""

STEEPER = tuple(name for name in PAINTERS_RANKING if name not in MILDEST)
RANKED_LEVEL, SLOPE_LEVEL = 0.99, 1 - 0.05 / (len(MILDEST) * len(STEEPER))
"""The levels of each of the 15 pairs of the ranking, and of each pair of slopes."""

RANKING = "ranking"
PAIRS: Mapping[str, Sequence[tuple[str, str]]] = {
    "same_function": (("middle_repeat", "skip"),),
    "any_order": tuple(("skip", order) for order in ORDERS),
    "parallel": (("skip", "parallel"), ("parallel", "reverse")),
    "looping": (("parallel", "looped_parallel"),),
    RANKING: tuple((harsher, milder) for milder, harsher in combinations(PAINTERS_RANKING, 2)),
}
"""The harsher and the milder strategy of each comparison of a claim."""

COMPARED: Mapping[str, tuple[str, ...]] = {
    **{claim: tuple(dict.fromkeys(chain.from_iterable(pairs))) for claim, pairs in PAIRS.items()},
    "all_needed": ("skip",),
    "shallowest": PAINTERS_RANKING,
    "graceful": (*ORDERS, "skip"),
}
"""The strategies that a claim compares, all on the same windows."""


def painters_contrasts(
    losses: Iterable[Loss], records: Iterable[PlanRecord], depth: int, *, seed: Seed = 0, unigram: float | None = None
) -> list[Score]:
    """Return the rows of every claim whose plans the sweep contains.

    `losses` include the original model's, and `unigram` is the loss of a unigram model, above which no window is
    compared (`left_out` counts the windows of a claim that are not, `windows` those that are).

    Raises `MeasureError` as `layerwise.measure.stats.grid.arrange` does.
    """
    strategies = Strategies.of(arrange(losses), records, str(Plan.identity(depth)), seed=seed, unigram=unigram)
    return rows(strategies, depth)


def rows(strategies: Strategies, depth: int, claims: Iterable[str] = (*COMPARED, LOOP_COUNT)) -> list[Score]:
    compute: dict[str, Callable[[], Iterator[Score]]] = {
        **{claim: partial(_compare_pairs, strategies, claim) for claim in PAIRS},
        "all_needed": partial(_compare_widths, strategies, depth),
        "shallowest": partial(_compare_slopes, strategies),
        "graceful": partial(_compare_steps, strategies, depth),
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
    for name, mean in means.items():
        yield strategies.row(claim, name if claim == RANKING else f"cost:{name}", mean)
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


def _compare_slopes(strategies: Strategies) -> Iterator[Score]:
    windows = _windows(strategies, "shallowest")
    slopes = {name: _slope(_painters(name), windows) for name in PAINTERS_RANKING} if windows else {}
    for name, slope in slopes.items():
        yield strategies.row("shallowest", SLOPE, slope, strategy=name)
    for milder in MILDEST if windows else ():
        for harsher in STEEPER:
            less = _less(slopes[harsher], slopes[milder])
            columns = {"strategy": harsher, "against": milder}
            yield strategies.row("shallowest", RELATIVE, less, level=SLOPE_LEVEL, **columns)


def _compare_steps(strategies: Strategies, depth: int) -> Iterator[Score]:
    sizes = step_ends(strategies.windows(*map(_painters, COMPARED["graceful"])), depth)
    if len(sizes) < MIN_STEPS:
        return

    def excess(costs: Costs, name: str, weights: Numbers) -> Numbers:
        curve = costs(_painters(name), sizes)
        return np.asarray(curve @ weights / np.maximum(curve.max(axis=-1), SMALLEST))

    def less(costs: Costs, order: str, size: int) -> Numbers:
        greatest = np.maximum(costs(_painters("skip"), sizes).max(axis=-1), SMALLEST)
        absent, ordered = (costs(_painters(name), [size])[..., 0] for name in ("skip", order))
        return np.asarray((absent - ordered) / greatest)

    # Reordering a single layer changes nothing, and skipping one does.
    for name, start in {**dict.fromkeys(ORDERS, sizes[0] % 2), "skip": 0}.items():
        for size, weights in zip(sizes, excess_weights(sizes, start), strict=True):
            statistic = partial(excess, name=name, weights=weights)
            yield strategies.row("graceful", EXCESS, statistic, strategy=name, affected=size)
    for order in ORDERS:
        for size in sizes:
            columns = {"strategy": order, "against": "skip", "affected": size}
            yield strategies.row("graceful", LESS, partial(less, order=order, size=size), **columns)


def step_ends(sizes: Sequence[int], depth: int) -> tuple[int, ...]:
    """The sizes up to which the steps go: from the greatest down, a tenth of the depth or more apart.

    >>> step_ends((3, 5, 7, 9, 11), 12), step_ends(range(3, 33, 2), 32)
    ((3, 5, 7, 9, 11), (3, 7, 11, 15, 19, 23, 27, 31))
    """
    chosen: list[int] = []
    for size in sorted(sizes, reverse=True):
        if not chosen or chosen[-1] - size >= STEP_SHARE * depth:
            chosen.append(size)
    return tuple(chosen[::-1])


def excess_weights(sizes: Sequence[int], start: int) -> Numbers:
    """From the costs at `sizes`, none at `start`, to the excess of every step, of shape (steps, costs).

    >>> (excess_weights([3, 5, 7, 9, 11], 1) @ [0, 0, 1, 1, 1]).round(2).tolist()
    [-0.17, -0.2, 0.77, -0.26, -0.29]
    """
    layers = np.array(sizes, dtype=float) - start
    basis = np.stack([layers, layers**2], axis=1)
    residual = np.eye(len(layers)) - basis @ np.linalg.pinv(basis)
    return np.asarray(np.diff(residual, axis=0, prepend=0.0))


def _painters(strategy: str) -> Curve:
    return "painters", strategy


def _windows(strategies: Strategies, claim: str) -> tuple[int, ...]:
    windows = strategies.windows(*map(_painters, COMPARED[claim]))
    return windows if len(windows) >= MIN_WINDOWS else ()


def _slope(curve: Curve, windows: Sequence[int]) -> Statistic:
    sizes = np.array(windows, dtype=float)
    return lambda costs: np.asarray(costs(curve, windows) @ sizes / (sizes @ sizes))


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
    centred = np.array(windows, dtype=float) - np.mean(windows)

    def best(costs: Costs) -> Numbers:
        return np.stack([_find_best(costs, size, loops) for size in windows], axis=-1)

    yield strategies.row(LOOP_COUNT, "slope", lambda costs: np.asarray(best(costs) @ centred / (centred @ centred)))
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

    def means(choose: Costs, report: Costs, sizes: Sequence[int]) -> tuple[Numbers, Numbers]:
        gained, looped = (
            np.asarray(np.mean([_report_best(choose, report, size, curves[size]) for size in sizes], axis=0))
            for curves in (gains, dict.fromkeys(windows, loops))
        )
        return gained, looped

    def compare(choose: Costs, report: Costs) -> Numbers:
        return relative(*means(choose, report, windows))

    def subtract(choose: Costs, report: Costs, sizes: Sequence[int]) -> Numbers:
        return np.subtract(*means(choose, report, sizes))

    yield strategies.row_by_halves(LOOP_COUNT, "gain:loops", compare)
    yield strategies.row_by_halves(LOOP_COUNT, "gain-loops", partial(subtract, sizes=windows))
    for size in windows:
        yield strategies.row_by_halves(LOOP_COUNT, "gain-loops", partial(subtract, sizes=[size]), affected=size)


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
