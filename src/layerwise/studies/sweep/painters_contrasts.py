"""Contrasts that decide the claims of "Transformer Layers as Painters" (Sun et al., arXiv 2407.09298).

The cost of a strategy (`condition`) is its mean over the published windows of several layers, in nats/token. Two costs
compare by 2 (a - b) / (|a| + |b|); `against` is the milder one. `graceful` is the excess of step i of the costs at
M[1] < ... < M[n] layers over the best parabola through no cost at M[0]:
    excess[i] = (cost[i] - fit[i]) - (cost[i - 1] - fit[i - 1])        fit[i] = a (M[i] - M[0]) + b (M[i] - M[0])^2
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from layerwise.measure.stats.grid import arrange
from layerwise.measure.stats.statistics import Numbers, Seed
from layerwise.plan import Plan
from layerwise.plan.painters import PAINTERS_LOOPS, PAINTERS_RANKING
from layerwise.results.rows import Loss, PlanRecord, Score
from layerwise.results.vocabulary import CONTRAST, EXCESS, LESS, RELATIVE, SLOPE
from layerwise.studies.sweep.loops import FEWEST_WINDOWS, LOOP_COUNT, LOOPED, loop_count
from layerwise.studies.sweep.strategies import Costs, Curve, Statistic, Strategies, relative, relative_to

RANKED_LEVEL = 0.99
"""The level of each of the 15 pairs of a ranking, of which some would be distinguished by chance at 95 %."""

CONTRASTED = frozenset({"painters", "looped"})
"""The families that decide claims; `gain_sweep` is a null beside them."""

NARROW = 4

SHARE_OF_DEPTH = 0.1
"""The smallest step, as a share of the depth: many small steps would hide an abrupt one."""

FEWEST_STEPS = 5
"""With fewer, a parabola follows an abrupt step at either end too well."""

ORDERS = ("reverse", "random")
TAU = "tau"
SMALLEST = 1e-12
"""What stands for a cost that is not positive where something is divided by it, nats per token."""

MILDEST = ("random", "looped_parallel")
"""The strategies of which the paper says that quality falls the least steeply (section 3.8)."""

STEEPER = tuple(name for name in PAINTERS_RANKING if name not in MILDEST)

PAIRED: Mapping[str, float] = {"ranking": RANKED_LEVEL, "shallowest": 1 - 0.05 / (len(MILDEST) * len(STEEPER))}
"""The claims that hold pairs of strategies against each other, and the level of each pair."""


class Of(NamedTuple):
    """What one of several contrasts of a metric is of: a strategy, the milder one beside it, and a number of layers."""

    metric: str
    condition: str
    against: str | None = None
    amount: float | None = None


Named = Mapping[Any, Statistic]
"""The contrasts of one claim, by metric or by `Of`; none where the plans they need were not run."""


COMPARED: Mapping[str, tuple[str, ...]] = {
    "all_needed": ("skip",),
    "same_function": ("middle_repeat", "skip"),
    "any_order": (*ORDERS, "skip"),
    "parallel": ("skip", "parallel", "reverse"),
    "looping": ("parallel", "looped_parallel"),
    "ranking": PAINTERS_RANKING,
    "shallowest": PAINTERS_RANKING,
    "graceful": (*ORDERS, "skip"),
}


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


def rows(strategies: Strategies, depth: int, claims: Iterable[str] | None = None) -> list[Score]:
    """The rows of `claims`, by default all of them; those of all the text are on the same resamples."""
    named: dict[str, Named] = {
        "all_needed": all_needed(strategies, depth),
        "same_function": same_function(strategies),
        "any_order": any_order(strategies),
        "parallel": parallel(strategies),
        "looping": looping(strategies),
        "ranking": ranking(strategies),
        "shallowest": shallowest(strategies),
        "graceful": graceful(strategies, depth),
    }
    chosen = tuple(claims or (*named, LOOP_COUNT))
    wanted = [(claim, of) for claim in chosen if claim in named for of in named[claim]]
    scores = []
    for claim, of in sorted(wanted, key=lambda each: each[0] in PAIRED and _is_pair(each[1])):
        columns = of._asdict() if isinstance(of, Of) else {"metric": of}
        level = PAIRED[claim] if claim in PAIRED and _is_pair(of) else 0.95
        row = strategies.row(claim, statistic=named[claim][of], level=level, **columns)
        # A tau that is the same in every resample would have an interval of no width: it is bounded by one pair less.
        scores.append(with_a_pair_less(row) if of == TAU else row)
    scores += loop_count(strategies) if LOOP_COUNT in chosen else []
    return scores + [row for claim in chosen for row in _windows_compared(strategies, claim)]


def _windows_compared(strategies: Strategies, claim: str) -> list[Score]:
    """Return how many windows a claim is about, and how many are left out; nothing where none is."""
    curves = [_painters(name) for name in COMPARED.get(claim, ())]
    if claim == LOOP_COUNT:
        curves = [curve for curve in strategies.rows if curve[0] == LOOPED]
    measured = strategies.measured(*curves, best=claim == LOOP_COUNT).values()
    counts = {"left_out": len(measured) - sum(measured), "windows": sum(measured)}
    return [Score(CONTRAST, name, float(count), claim=claim) for name, count in counts.items() if counts["left_out"]]


def with_a_pair_less(tau: Score) -> Score:
    if tau.low is None or tau.high is None:
        return tau
    pair = 2 / len(list(combinations(PAINTERS_RANKING, 2)))
    return replace(tau, low=max(-1.0, min(tau.low, tau.value - pair)), high=min(1.0, max(tau.high, tau.value + pair)))


def _is_pair(of: str | Of) -> bool:
    return of.metric == RELATIVE if isinstance(of, Of) else ":" in of


def all_needed(strategies: Strategies, depth: int) -> Named:
    skip = _painters("skip")
    windows = strategies.windows(skip)
    if len(windows) < FEWEST_WINDOWS:
        return {}
    widest = windows[-1]
    narrow = [size for size in windows[:-1] if size <= max(windows[0], depth / NARROW)]

    def saved(costs: Costs) -> Numbers:
        few, whole = costs(skip, narrow).sum(axis=-1) / sum(narrow), costs(skip, [widest])[..., 0] / widest
        return np.asarray(1 - few / np.maximum(whole, SMALLEST))

    def rise(costs: Costs) -> Numbers:
        return np.asarray(costs(skip, [widest])[..., 0] - costs(skip, narrow).mean(axis=-1))

    return {"saved": saved, "rise": rise}


def same_function(strategies: Strategies) -> Named:
    windows = _windows(strategies, *COMPARED["same_function"])
    if not windows:
        return {}
    return {
        "middle_repeat:skip": _less("middle_repeat", "skip", windows),
        "middle_repeat": _cost("middle_repeat", windows),
        **_costs("same_function", windows),
    }


def any_order(strategies: Strategies) -> Named:
    windows = _windows(strategies, *COMPARED["any_order"])
    if not windows:
        return {}
    less = {f"skip:{order}": _less("skip", order, windows) for order in ORDERS}
    return less | {order: _share(order, "skip", windows) for order in ORDERS} | _costs("any_order", windows)


def parallel(strategies: Strategies) -> Named:
    windows = _windows(strategies, *COMPARED["parallel"])
    if not windows:
        return {}
    steps = (("skip", "parallel"), ("parallel", "reverse"))
    less = {f"{harsher}:{milder}": _less(harsher, milder, windows) for harsher, milder in steps}
    return less | _costs("parallel", windows)


def looping(strategies: Strategies) -> Named:
    windows = _windows(strategies, *COMPARED["looping"])
    if not windows:
        return {}
    statistics: dict[str, Statistic] = {
        "parallel:looped_parallel": _less("parallel", "looped_parallel", windows),
        **_costs("looping", windows),
    }
    gain, looped = ("gain_sweep", f"gain={PAINTERS_LOOPS}"), _painters("looped_parallel")
    shared = strategies.windows(gain, looped)
    if len(shared) >= FEWEST_WINDOWS:
        statistics["gain:looped_parallel"] = lambda costs: relative(
            costs(gain, shared).mean(axis=-1), costs(looped, shared).mean(axis=-1)
        )
    return statistics


def ranking(strategies: Strategies) -> Named:
    windows = _windows(strategies, *PAINTERS_RANKING)
    if not windows:
        return {}

    def tau(costs: Costs) -> Numbers:
        harm = [_mean(costs, name, windows) for name in PAINTERS_RANKING]
        return np.asarray(np.mean([np.sign(harsher - milder) for milder, harsher in combinations(harm, 2)], axis=0))

    pairs = {f"{b}:{a}": _less(b, a, windows) for a, b in combinations(PAINTERS_RANKING, 2)}
    return {TAU: tau, **pairs, **{name: _cost(name, windows) for name in PAINTERS_RANKING}}


def shallowest(strategies: Strategies) -> Named:
    windows = _windows(strategies, *PAINTERS_RANKING)
    if not windows:
        return {}
    pairs = {Of(RELATIVE, b, a): _steeper(b, a, windows) for a in MILDEST for b in STEEPER}
    return pairs | {Of(SLOPE, name): _slope(name, windows) for name in PAINTERS_RANKING}


def graceful(strategies: Strategies, depth: int) -> Named:
    sizes = step_ends(strategies.windows(*map(_painters, COMPARED["graceful"])), depth)
    if len(sizes) < FEWEST_STEPS:
        return {}
    # Reordering a single layer changes nothing, and skipping one does.
    starts = {**dict.fromkeys(ORDERS, sizes[0] % 2), "skip": 0}
    excess = {
        Of(EXCESS, name, amount=size): _of_greatest(name, sizes, weights)
        for name, start in starts.items()
        for size, weights in zip(sizes, excess_weights(sizes, start), strict=True)
    }
    less = {Of(LESS, order, "skip", size): _below_absence(order, sizes, size) for order in ORDERS for size in sizes}
    return excess | less


def step_ends(sizes: Sequence[int], depth: int) -> tuple[int, ...]:
    """The sizes up to which the steps go: from the greatest down, a tenth of the depth or more apart.

    >>> step_ends((3, 5, 7, 9, 11), 12), step_ends(range(3, 33, 2), 32)
    ((3, 5, 7, 9, 11), (3, 7, 11, 15, 19, 23, 27, 31))
    """
    chosen: list[int] = []
    for size in sorted(sizes, reverse=True):
        if not chosen or chosen[-1] - size >= SHARE_OF_DEPTH * depth:
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


def _of_greatest(name: str, sizes: Sequence[int], weights: Numbers) -> Statistic:
    def share(costs: Costs) -> Numbers:
        curve = costs(_painters(name), sizes)
        return np.asarray(curve @ weights / np.maximum(curve.max(axis=-1), SMALLEST))

    return share


def _below_absence(order: str, sizes: Sequence[int], size: int) -> Statistic:
    def share(costs: Costs) -> Numbers:
        greatest = np.maximum(costs(_painters("skip"), sizes).max(axis=-1), SMALLEST)
        absent, ordered = (costs(_painters(name), [size])[..., 0] for name in ("skip", order))
        return np.asarray((absent - ordered) / greatest)

    return share


def _painters(strategy: str) -> Curve:
    return "painters", strategy


def _windows(strategies: Strategies, *names: str) -> tuple[int, ...]:
    windows = strategies.windows(*map(_painters, names))
    return windows if len(windows) >= FEWEST_WINDOWS else ()


def _mean(costs: Costs, strategy: str, windows: Sequence[int]) -> Numbers:
    return np.asarray(costs(_painters(strategy), windows).mean(axis=-1))


def _costs(claim: str, windows: Sequence[int]) -> dict[str, Statistic]:
    return {f"cost:{name}": _cost(name, windows) for name in COMPARED[claim]}


def _cost(strategy: str, windows: Sequence[int]) -> Statistic:
    return lambda costs: _mean(costs, strategy, windows)


def _less(harsher: str, milder: str, windows: Sequence[int]) -> Statistic:
    return lambda costs: relative(_mean(costs, harsher, windows), _mean(costs, milder, windows))


def _slope(strategy: str, windows: Sequence[int]) -> Statistic:
    sizes = np.array(windows, dtype=float)
    return lambda costs: np.asarray(costs(_painters(strategy), windows) @ sizes / (sizes @ sizes))


def _steeper(harsher: str, milder: str, windows: Sequence[int]) -> Statistic:
    first, second = _slope(harsher, windows), _slope(milder, windows)
    return lambda costs: relative(first(costs), second(costs))


def _share(strategy: str, other: str, windows: Sequence[int]) -> Statistic:
    def share(costs: Costs) -> Numbers:
        own, against = _mean(costs, strategy, windows), _mean(costs, other, windows)
        return relative_to(own, own, against)

    return share
