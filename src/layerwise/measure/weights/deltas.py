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

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from layerwise.errors import MeasureError
from layerwise.measure.stats.estimate import Bounded, Numbers
from layerwise.measure.stats.float64 import to_float64_cpu
from layerwise.measure.weights.tensors import (
    ALL,
    Orders,
    StackTensors,
    Summands,
    compute_gram,
    draw_orders,
    evenly_spaced,
    find_tensor_types,
    non_finite_error,
    part_column,
    pool_ratios,
    random_tensors,
)
from layerwise.results.estimate import Estimate
from layerwise.results.rows import Score
from layerwise.results.vocabulary import DELTAS, RANDOM_TWIN, SHUFFLED
from layerwise.results.vocabulary import INDEPENDENT as INDEPENDENT_LAYERS
from layerwise.stack import Stack

LAGS = (1, 2, 3, 4, 5)
INDEPENDENT_CORRELATION = -0.5
"""The correlation of neighbouring differences of independent layers."""

MARGIN = 0.1
"""The smallest excess of the correlation that counts as lag structure; stated before anything is measured."""

MIN_ORDERS = 40
"""Of fewer orders none is beyond 2.5 % at either end."""

_ROUNDING = 1e-12
"""The rounding of identical layers, as a share of their square: that of twenty million entries in float64."""

Grams = Mapping[str, Numbers]


def deltas(stack: Stack, *, seed: int = 0) -> list[Score]:
    """Compute the lag structure of the weights of `stack` over depth; see the module for the rows.

    `seed` draws the shuffled orders and the random twin (no rows if a model has none). Raises `MeasureError`
    without a weight matrix of equal shape in all layers, and for weights that are not finite.
    """
    return list(delta_rows(StackTensors(stack), random_tensors(stack, seed), seed=seed))


def delta_rows(tensors: StackTensors, twin: StackTensors | None = None, *, seed: int = 0) -> Iterator[Score]:
    grams = _grams(tensors)
    twin_grams = _grams(twin) if twin is not None else {}
    orders = draw_orders(tensors.depth, seed)
    for lag in LAGS:
        if lag > tensors.depth - 2:
            break
        correlations = _correlations(grams, lag)
        line = INDEPENDENT_CORRELATION if lag == 1 else 0.0
        values: dict[str | None, Mapping[str, Bounded]] = {
            None: correlations,
            INDEPENDENT_LAYERS: dict.fromkeys(correlations, (line, line, line)),
            SHUFFLED: _shuffled_bands({name: grams[name] for name in correlations if name != ALL}, orders, lag),
            RANDOM_TWIN: _correlations(twin_grams, lag),
        }
        for against, by_type in values.items():
            for name, bounded in by_type.items():
                yield Score(DELTAS, "correlation", *bounded, distance=lag, part=part_column(name), against=against)
        for name, each in excess_correlation(grams, orders).items() if lag == 1 else ():
            low, high = (each.low, each.high) if each.has_interval else (None, None)
            yield Score(
                DELTAS, name_verdict(each), each.value, low, high, mde=each.mde, distance=1, part=part_column(name)
            )


def correlation_summands(products: Numbers, lag: int) -> Summands:
    """Return the summands of `correlation(lag)` over pairs: (..., depth, depth) -> (..., depth - 1 - lag)."""
    # <D_i, D_j> for all pairs of differences at once.
    inner = np.diff(np.diff(products, axis=-2), axis=-1)
    squares = np.diagonal(inner, axis1=-2, axis2=-1)
    squares = np.where(squares > _ROUNDING * _size(products), squares, 0.0)
    ends = squares.shape[-1] - lag
    return np.diagonal(inner, lag, -2, -1), (squares[..., :ends] + squares[..., lag:]) / 2


def _size(products: Numbers) -> Numbers:
    size: Numbers = np.diagonal(products, axis1=-2, axis2=-1).mean(axis=-1, keepdims=True)
    return size


def excess_correlation(grams: Grams, orders: Orders) -> dict[str, Estimate]:
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
    few = math.factorial(orders.shape[1]) // 2 < MIN_ORDERS  # an order and its reversal have one correlation
    return {name: _estimate_excess(value, null, few) for name, (null, value) in values.items()}


def name_verdict(excess: Estimate) -> str:
    names = {"within": "no_lag_structure", "above": "smooth", "below": "oscillating", "open": "unresolved"}
    return names[excess.locate(MARGIN)]


def _lag_one(products: Numbers) -> Numbers:
    above, below = (each.sum(axis=-1) for each in correlation_summands(products, 1))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(below > 0, above / below, np.nan))


def _estimate_excess(value: float, null: Numbers, few: bool) -> Estimate:
    middle = float(null.mean())
    if few:
        return Estimate(value - middle)
    lower, upper = (float(bound) for bound in np.quantile(null, (0.025, 0.975)))
    mde = float((stats.norm.ppf(0.975) + stats.norm.ppf(0.8)) * float(null.std(ddof=1)))
    return Estimate(value - middle, value - upper, value - lower, mde=mde)


def _grams(tensors: StackTensors) -> Grams:
    return {kind.name: compute_gram(tensors, kind) for kind in find_tensor_types(tensors, DELTAS)}


def _correlations(grams: Grams, lag: int) -> dict[str, Bounded]:
    return pool_ratios({name: correlation_summands(products, lag) for name, products in grams.items()})


def _shuffled_bands(grams: Grams, orders: Orders, lag: int) -> dict[str, Bounded]:
    """Return the mean, 2.5 and 97.5 % points over orders by tensor type, and those of the mean over types."""
    values: dict[str, Numbers] = {}
    for name, products in grams.items():
        above, below = correlation_summands(products[orders[:, :, None], orders[:, None, :]], lag)
        values[name] = above.sum(axis=1) / below.sum(axis=1)
    if values:
        values[ALL] = np.mean(list(values.values()), axis=0)
    limits = {name: np.quantile(each, (0.025, 0.975)).tolist() for name, each in values.items()}
    return {name: (float(each.mean()), limits[name][0], limits[name][1]) for name, each in values.items()}


def weight_norms(stack: Stack, *, seed: int = 0) -> list[Score]:
    """Compute the norm and the effective rank of every layer of `stack`; `seed` draws the null.

    Raises `MeasureError` for layers without matrices, and weights that are not finite.
    """
    return list(norm_rows(StackTensors(stack), random_tensors(stack, seed)))


def norm_rows(tensors: StackTensors, twin: StackTensors | None = None) -> Iterator[Score]:
    by_layer = {layer: _layer_figures(tensors, layer) for layer in range(tensors.depth)}
    if not any(by_layer.values()):
        raise MeasureError(f"layers must have weight matrices to have a norm, got {tensors.depth} layers without any.")
    drawn = [] if twin is None else [_layer_figures(twin, layer) for layer in evenly_spaced(range(twin.depth))]
    for layer, figures in by_layer.items():
        for metric, value in figures.items():
            yield Score(DELTAS, metric, value, layer=layer)
            values = [each[metric] for each in drawn if each]
            if values:
                mean = sum(values) / len(values)
                yield Score(DELTAS, metric, mean, min(values), max(values), layer=layer, against=RANDOM_TWIN)


def _layer_figures(tensors: StackTensors, layer: int) -> dict[str, float]:
    squares, ranks = [], []
    for name, shape in tensors.shapes(layer).items():
        matrix = to_float64_cpu(tensors.rows(layer, name, 0, shape[0]).reshape(-1, shape[-1]))
        if not matrix.isfinite().all():
            raise non_finite_error(layer, name)
        if matrix.any():
            squares.append(float(matrix.square().sum()))
            ranks.append(effective_rank(matrix))
    return {"norm": math.sqrt(sum(squares)), "effective_rank": sum(ranks) / len(ranks)} if ranks else {}


def effective_rank(matrix: Tensor) -> float:
    """Compute the effective rank of one matrix (rows, columns), float64 and not zero.

    >>> round(effective_rank(torch.eye(8, dtype=torch.float64)), 6)
    8.0
    """
    square = matrix.T @ matrix if len(matrix) >= matrix.shape[1] else matrix @ matrix.T
    values = torch.linalg.eigvalsh(square)
    # Rounding leaves zero eigenvalues slightly off zero, on either side.
    values = values.where(values > 1e-12 * values[-1], 0.0)
    shares = values.sqrt() / values.sqrt().sum()
    return math.exp(-float(torch.xlogy(shares, shares).sum()))
