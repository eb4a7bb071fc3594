"""Correlation of weight differences between successive layers; norms and effective ranks of layers."""

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
from layerwise.results.vocabulary import DELTAS, RANDOM_INIT, SHUFFLED
from layerwise.results.vocabulary import INDEPENDENT as INDEPENDENT_LAYERS
from layerwise.stack import Stack

LAGS = (1, 2, 3, 4, 5)
INDEPENDENT_CORRELATION = -0.5
"""The correlation of neighboring differences if the layers are independent."""

MARGIN = 0.1
"""Minimum excess correlation that counts as lag structure."""

MIN_ORDERS = 40
"""Minimum number of orders for the 2.5 % and 97.5 % quantiles."""

_ROUNDING = 1e-12
"""Rounding error of identical layers relative to their square, for 20 million entries in float64."""

Grams = Mapping[str, Numbers]


def deltas(stack: Stack, *, seed: int = 0) -> list[Score]:
    """Correlate the weight differences D_l = W_{l+1} - W_l with the differences k layers later.

        correlation(k) = sum_l <D_l, D_{l+k}> / sum_l (|D_l|^2 + |D_{l+k}|^2) / 2            in -1..1

    At lag k = 1, independent layers of equal variance give -1/2, a random walk gives 0, and a drift gives 1. At larger
    lags independent layers give 0. Each lag and tensor type has a row with a Student t interval over pairs, and rows of
    three baselines: independent layers, shuffled layers, and a randomly initialized model. For lag 1, another
    row has a verdict as its metric (`smooth`, `no_lag_structure`, `oscillating` or `inconclusive`); its value is the
    correlation minus its mean over shuffled layers.

    Raises:
        MeasureError: If no weight matrix has the same shape in all layers, or weights are not finite.
    """
    return list(delta_rows(StackTensors(stack), random_tensors(stack, seed), seed=seed))


def delta_rows(tensors: StackTensors, untrained: StackTensors | None = None, *, seed: int = 0) -> Iterator[Score]:
    grams = _grams(tensors)
    untrained_grams = _grams(untrained) if untrained is not None else {}
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
            RANDOM_INIT: _correlations(untrained_grams, lag),
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
    """Return the numerators and denominators of the correlation at `lag`, (..., depth - 1 - lag) each.

    `products` has the inner products of the weights of all pairs of layers, (..., depth, depth).
    """
    # <D_i, D_j> for all pairs of differences at once.
    inner = np.diff(np.diff(products, axis=-2), axis=-1)
    squares = np.diagonal(inner, axis1=-2, axis2=-1)
    size = np.diagonal(products, axis1=-2, axis2=-1).mean(axis=-1, keepdims=True)
    squares = np.where(squares > _ROUNDING * size, squares, 0.0)
    ends = squares.shape[-1] - lag
    return np.diagonal(inner, lag, -2, -1), (squares[..., :ends] + squares[..., lag:]) / 2


def excess_correlation(grams: Grams, orders: Orders) -> dict[str, Estimate]:
    """Return the lag-1 correlation minus its mean over random orders of the layers, for each tensor type and `all`.

    Every layer is first divided by its norm. The interval is computed from quantiles q over the random orders:

        low = value - (q(97.5 %) - mean)        high = value + (mean - q(2.5 %))

    There is no interval if the layers have fewer than 40 distinct orders.
    """
    values: dict[str, tuple[Numbers, float]] = {}
    for name, products in grams.items():
        norms = np.sqrt(np.diagonal(products))
        if (norms > 0).all():
            unit = products / np.outer(norms, norms)
            observed = _lag_one(unit)
            if np.isfinite(observed):
                values[name] = (_lag_one(unit[orders[:, :, None], orders[:, None, :]]), float(observed))
    if not values:
        return {}
    shuffled, all_observed = zip(*values.values(), strict=True)
    values[ALL] = (np.mean(shuffled, axis=0), float(np.mean(all_observed)))
    few = math.factorial(orders.shape[1]) // 2 < MIN_ORDERS  # an order and its reversal have one correlation
    return {name: _estimate_excess(value, null, few) for name, (null, value) in values.items()}


def name_verdict(excess: Estimate) -> str:
    names = {"within": "no_lag_structure", "above": "smooth", "below": "oscillating", "open": "inconclusive"}
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
    """Return the mean and the 2.5 % and 97.5 % quantiles over orders, for each tensor type and their mean."""
    values: dict[str, Numbers] = {}
    for name, products in grams.items():
        above, below = correlation_summands(products[orders[:, :, None], orders[:, None, :]], lag)
        values[name] = above.sum(axis=1) / below.sum(axis=1)
    if values:
        values[ALL] = np.mean(list(values.values()), axis=0)
    limits = {name: np.quantile(each, (0.025, 0.975)).tolist() for name, each in values.items()}
    return {name: (float(each.mean()), limits[name][0], limits[name][1]) for name, each in values.items()}


def weight_norms(stack: Stack, *, seed: int = 0) -> list[Score]:
    """Compute the Frobenius norm of every layer, and the mean effective rank of its nonzero matrices.

    A weight with more than two axes is flattened to a matrix that keeps its last axis. The baseline is the mean,
    minimum and maximum over six layers of a randomly initialized model. Raises `MeasureError` if layers have no
    matrices or weights are not finite.
    """
    return list(norm_rows(StackTensors(stack), random_tensors(stack, seed)))


def norm_rows(tensors: StackTensors, untrained: StackTensors | None = None) -> Iterator[Score]:
    by_layer = {layer: _layer_figures(tensors, layer) for layer in range(tensors.depth)}
    if not any(by_layer.values()):
        raise MeasureError(f"Layers must have weight matrices to have a norm, got {tensors.depth} layers without any.")
    null_layers = [] if untrained is None else evenly_spaced(range(untrained.depth))
    drawn = [_layer_figures(untrained, layer) for layer in null_layers if untrained is not None]
    for layer, figures in by_layer.items():
        for metric, value in figures.items():
            yield Score(DELTAS, metric, value, layer=layer)
            values = [each[metric] for each in drawn if each]
            if values:
                mean = sum(values) / len(values)
                yield Score(DELTAS, metric, mean, min(values), max(values), layer=layer, against=RANDOM_INIT)


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
    """Compute exp(entropy of the normalized singular values) of a nonzero float64 matrix (Roy and Vetterli 2007).

    >>> round(effective_rank(torch.eye(8, dtype=torch.float64)), 6)
    8.0
    """
    square = matrix.T @ matrix if len(matrix) >= matrix.shape[1] else matrix @ matrix.T
    values = torch.linalg.eigvalsh(square)
    # Rounding leaves zero eigenvalues slightly off zero, on either side.
    values = values.where(values > 1e-12 * values[-1], 0.0)
    shares = values.sqrt() / values.sqrt().sum()
    return math.exp(-float(torch.xlogy(shares, shares).sum()))
