"""Correlation of successive weight differences D_l = W_{l+1} - W_l over depth, with its exact null.

    correlation(k) = sum_l <D_l, D_{l+k}> / sum_l (|D_l|^2 + |D_{l+k}|^2) / 2            in -1..1

Independent layers of equal variance give -1/2 at lag 1 (a random walk 0, drift 1, alternation less) and 0 above. Rows
of measure `deltas`, by lag and tensor type: correlation (nulls `@independent`, `@shuffled` layers, `@random_twin`),
and at lag 1 the verdict smooth, no_lag_structure, oscillating or unresolved: `excess` over shuffled layers of norm 1,
margin 0.1. Intervals: Student's over pairs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from scipy import stats

from layerwise.measure.stats.null_comparison import ALL, Parts, Pooled, pooled, type_of
from layerwise.measure.stats.statistics import Numbers
from layerwise.measure.weights.tensors import (
    Orders,
    StackTensors,
    Tensors,
    bands,
    gram,
    shuffled_orders,
    tensor_types,
    twin_tensors,
)
from layerwise.results.rows import Score
from layerwise.results.vocabulary import DELTAS, RANDOM_TWIN, SHUFFLED
from layerwise.results.vocabulary import INDEPENDENT as INDEPENDENT_LAYERS
from layerwise.stack import Stack

LAGS = (1, 2, 3, 4, 5)
INDEPENDENT = -0.5
"""The correlation of neighbouring differences of independent layers."""

MARGIN = 0.1
"""The smallest excess of the correlation that counts as lag structure; stated before anything is measured."""

FEWEST_ORDERS = 40
"""Of fewer orders none is beyond 2.5 % at either end."""

_ROUNDING = 1e-12
"""The rounding of identical layers, as a share of their square: that of twenty million entries in float64."""

Grams = Mapping[str, Numbers]


def deltas(stack: Stack, *, seed: int = 0) -> list[Score]:
    """Compute the lag structure of the weights of `stack` over depth; see the module for the rows.

    `seed` draws the shuffled orders and the random twin (no rows if a model has none). Raises `MeasureError` for fewer
    than 4 layers, without a weight matrix of equal shape in all layers, and for weights that are not finite.
    """
    return list(delta_rows(StackTensors(stack), twin_tensors(stack, seed), seed=seed))


def delta_rows(tensors: Tensors, twin: Tensors | None = None, *, seed: int = 0) -> Iterator[Score]:
    grams = _grams(tensors)
    twin_grams = _grams(twin) if twin is not None else {}
    orders = shuffled_orders(tensors.depth, seed)
    for lag in LAGS:
        if lag > tensors.depth - 2:
            break
        correlations = _correlations(grams, lag)
        line = INDEPENDENT if lag == 1 else 0.0
        yield from _rows(lag, "correlation", correlations)
        line_by_type = {name: Pooled(line, line, line) for name in correlations}
        yield from _rows(lag, "correlation", line_by_type, INDEPENDENT_LAYERS)
        yield from _rows(lag, "correlation", _shuffled_bands(grams, correlations, orders, lag), SHUFFLED)
        yield from _rows(lag, "correlation", _correlations(twin_grams, lag), RANDOM_TWIN)
        if lag == 1:
            yield from _verdicts(excess(grams, orders))


def correlation_parts(products: Numbers, lag: int) -> Parts:
    """Return the summands of `correlation(lag)` over pairs: (..., depth, depth) -> (..., depth - 1 - lag)."""
    # <D_i, D_j> for all pairs of differences at once.
    inner = np.diff(np.diff(products, axis=-2), axis=-1)
    squares = np.diagonal(inner, axis1=-2, axis2=-1)
    squares = np.where(squares > _ROUNDING * _size(products), squares, 0.0)
    ends = squares.shape[-1] - lag
    return Parts(np.diagonal(inner, lag, -2, -1), (squares[..., :ends] + squares[..., lag:]) / 2)


def _size(products: Numbers) -> Numbers:
    size: Numbers = np.diagonal(products, axis1=-2, axis2=-1).mean(axis=-1, keepdims=True)
    return size


def excess(grams: Grams, orders: Orders) -> dict[str, Excess]:
    """Return the correlation at lag 1 minus that of the same layers in random orders, by tensor type and `all`.

    Every layer is first divided by its norm. The spread of random orders around their mean is that of the value:

        low = value - (upper 2.5 % point - mean)        high = value + (mean - lower 2.5 % point)

    There are no bounds for so few layers that there are fewer than 40 orders.
    """
    values: dict[str, tuple[Numbers, float]] = {}
    for name, products in grams.items():
        norms = np.sqrt(np.diagonal(products))
        if (norms > 0).all():
            unit = products / np.outer(norms, norms)
            own = _lag_one(unit)
            if np.isfinite(own):
                values[name] = (_lag_one(unit[orders[:, :, None], orders[:, None, :]]), float(own))
    if not values:
        return {}
    shuffled, own_values = zip(*values.values(), strict=True)
    values[ALL] = (np.mean(shuffled, axis=0), float(np.mean(own_values)))
    few = math.factorial(orders.shape[1]) // 2 < FEWEST_ORDERS  # an order and its reversal have one correlation
    return {name: _centred(value, null, few) for name, (null, value) in values.items()}


@dataclass(frozen=True, slots=True)
class Excess:
    """A correlation less the mean of its shuffled orders, its interval, and their standard deviation."""

    value: float
    low: float | None
    high: float | None
    deviation: float

    @property
    def mde(self) -> float | None:
        """The excess that 80 of 100 stacks would show: (z[.975] + z[.8]) standard deviations."""
        return None if self.low is None else float((stats.norm.ppf(0.975) + stats.norm.ppf(0.8)) * self.deviation)


def verdict(interval: Excess) -> str:
    if interval.low is None or interval.high is None:
        return "unresolved"
    if interval.low > -MARGIN and interval.high < MARGIN:
        return "no_lag_structure"
    return "smooth" if interval.low > 0 else "oscillating" if interval.high < 0 else "unresolved"


def _lag_one(products: Numbers) -> Numbers:
    parts = correlation_parts(products, 1)
    below = parts.denominators.sum(axis=-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(below > 0, parts.numerators.sum(axis=-1) / below, np.nan))


def _centred(value: float, null: Numbers, few: bool) -> Excess:
    middle, deviation = float(null.mean()), float(null.std(ddof=1))
    if few:
        return Excess(value - middle, None, None, deviation)
    lower, upper = (float(bound) for bound in np.quantile(null, (0.025, 0.975)))
    return Excess(value - middle, value - upper, value - lower, deviation)


def _grams(tensors: Tensors) -> Grams:
    return {kind.name: gram(tensors, kind) for kind in tensor_types(tensors, DELTAS)}


def _correlations(grams: Grams, lag: int) -> dict[str, Pooled]:
    return pooled({name: correlation_parts(products, lag) for name, products in grams.items()})


def _shuffled_bands(grams: Grams, pooled_by_type: Mapping[str, Pooled], orders: Orders, lag: int) -> dict[str, Pooled]:
    values: dict[str, Numbers] = {}
    for name in [task for task in pooled_by_type if task != ALL]:
        each = correlation_parts(grams[name][orders[:, :, None], orders[:, None, :]], lag)
        values[name] = each.numerators.sum(axis=1) / each.denominators.sum(axis=1)
    return bands(values)


def _verdicts(by_type: Mapping[str, Excess]) -> Iterator[Score]:
    for name, each in by_type.items():
        yield Score(DELTAS, verdict(each), each.value, each.low, each.high, mde=each.mde, amount=1, part=type_of(name))


def _rows(lag: int, metric: str, by_type: Mapping[str, Pooled], against: str | None = None) -> Iterator[Score]:
    for name, each in by_type.items():
        yield Score(DELTAS, metric, each.value, each.low, each.high, amount=lag, part=type_of(name), against=against)
