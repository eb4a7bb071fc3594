"""Predict the weights of a layer from its neighbors by ridge regression."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from statistics import median_low

import numpy as np
import torch
from torch import Tensor

from layerwise.measure.stats.estimate import Bounded
from layerwise.measure.stats.float64 import to_float64_cpu
from layerwise.measure.stats.ridge import PENALTIES, Moments, Residual, choose_penalty, count_fitted_rows, fit_ridge
from layerwise.measure.weights.tensors import (
    ALL,
    Fractions,
    Orders,
    StackTensors,
    TensorType,
    UnitSample,
    complement_rows,
    draw_orders,
    evenly_spaced,
    find_tensor_types,
    from_units,
    non_finite_error,
    pool_complements,
    random_tensors,
    read_units,
    sample_units,
    stream_width,
    to_units,
)
from layerwise.results.rows import Score
from layerwise.results.vocabulary import (
    P_OVER_N,
    PERMUTED_UNITS,
    PREDICTABILITY,
    RANDOM_INIT,
    SHUFFLED_LAYERS,
)
from layerwise.stack import Stack
from layerwise.stack.weights import layer_weights


def predictability(stack: Stack, *, seed: int = 0) -> list[Score]:
    """Compute how well neighboring layers predict a layer's weights, for each tensor type and layer.

    The rows of [W_{l-1}, W_{l+1}] predict the same rows of W_l. R2 is 1 - (sum of squared errors) / (sum of squares
    about the training mean). The penalty is selected on training rows.

        in_sample_r2         fitted to all rows with a tiny penalty; the baseline is p / (n - 1), the R2 of noise
        heldout_rows_r2      fitted to four fifths of the rows, evaluated on the rest
        heldout_layers_r2    one map for a group of layers, fitted to layers outside it; needs at least 8 layers

    The baselines of held-out R2 are a randomly initialized model, permuted rows and shuffled layers.

    Raises:
        MeasureError: If no weight matrix has the same shape in all layers, or weights are not finite.
    """
    return list(predictability_rows(StackTensors(stack), random_tensors(stack, seed), seed=seed))


def predictability_rows(
    tensors: StackTensors, untrained: StackTensors | None = None, *, seed: int = 0
) -> Iterator[Score]:
    types = find_tensor_types(tensors, PREDICTABILITY)
    width = stream_width(types)
    # Seeded by name, not index, so that a type's sample does not depend on the other types.
    samples = [sample_units(kind, width, seed ^ zlib.crc32(kind.name.encode())) for kind in types]
    yield from rows_for_samples(tensors, untrained, samples, draw_orders(tensors.depth, seed), seed)


def rows_for_samples(
    tensors: StackTensors, untrained: StackTensors | None, samples: Sequence[UnitSample], orders: Orders, seed: int
) -> Iterator[Score]:
    by_metric: dict[tuple[str, str], dict[str, Fractions]] = defaultdict(dict)
    lines: dict[str, float] = {}
    trained = tuple(range(tensors.depth))
    for sample in samples:
        if len(sample.rows) < MIN_ROWS:
            continue
        real = Triples(tensors, sample, trained)
        variants = {
            PERMUTED_UNITS: Triples(tensors, sample, trained, permuted=seed),
            SHUFFLED_LAYERS: Triples(tensors, sample, tuple(orders[0].tolist())),
        }
        if untrained is not None:
            variants[RANDOM_INIT] = Triples(untrained, sample, trained)
        name = sample.kind.name
        if real.predictors_by_rows < 1:  # otherwise the fit is exact for any weights
            lines[name] = real.predictors_by_rows
            by_metric["in_sample_r2", ""][name] = _fractions(in_sample_residuals(real, evenly_spaced(real.positions)))
        for variant, triples in {"": real, **variants}.items():
            shares = choose_penalties(triples)
            positions = evenly_spaced(triples.positions) if variant else triples.positions
            by_metric["heldout_rows_r2", variant][name] = _fractions(held_out_row_residuals(triples, shares, positions))
            by_metric["heldout_layers_r2", variant][name] = _fractions(held_out_layer_residuals(triples, shares))
    if lines:
        lines[ALL] = sum(lines.values()) / len(lines)
    noise: dict[str, Bounded] = {name: (line, line, line) for name, line in lines.items()}
    yield from complement_rows(PREDICTABILITY, "in_sample_r2", by_metric["in_sample_r2", ""], {P_OVER_N: noise})
    for metric in ("heldout_rows_r2", "heldout_layers_r2"):
        nulls = {
            null: pool_complements(by_type) for (name, null), by_type in by_metric.items() if name == metric and null
        }
        yield from complement_rows(PREDICTABILITY, metric, by_metric[metric, ""], nulls)


def _fractions(residuals: Mapping[int, Residual]) -> Fractions:
    return {position: (each.errors, each.total) for position, each in residuals.items()}


MIN_ROWS = 10
"""Minimum number of rows of a weight matrix. The penalty is selected on a fifth of four fifths of the rows."""

MAX_FOLDS = 3
"""Maximum number of groups of adjacent layers to hold out in turn. The sums of each group are kept in memory."""

_MIN_FOLD_LAYERS = 3

_ROWS_PER_LAYER = 512

_MAX_PENALTY_POSITIONS = 3

_TINY_PENALTY = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class Triples:
    """Triples of successive layers of one tensor type, with the layers in the given `order`.

    If `permuted` is set, it is the seed with which the rows of each layer are permuted.
    """

    tensors: StackTensors
    sample: UnitSample
    order: tuple[int, ...]
    permuted: int | None = None

    @property
    def positions(self) -> range:
        return range(1, len(self.order) - 1)

    @property
    def predictors_by_rows(self) -> float:
        """The in-sample R2 of noise, which is p / (n - 1), at most 1."""
        return min(1.0, 2 * len(self.sample.columns) / (len(self.sample.rows) - 1))

    def iterate(self, positions: Iterable[int], rows: int | None = None) -> Iterator[tuple[int, Tensor, Tensor]]:
        """Yield each position in `order` with its predictors (rows, 2 width) and targets (rows, width).

        If `rows` is set, only the first `rows` rows are read.
        """
        cached: dict[int, Tensor] = {}
        for position in positions:
            near = (position - 1, position, position + 1)
            cached = {each: matrix for each, matrix in cached.items() if each in near}
            cached = {each: cached[each] if each in cached else self._matrix(each, rows) for each in near}
            before, here, after = cached.values()
            yield position, torch.cat((before, after), dim=1), here

    def _matrix(self, position: int, rows: int | None) -> Tensor:
        layer = self.order[position]
        sample = self.sample
        if self.permuted is not None:
            generator = torch.Generator().manual_seed(self.permuted + layer)
            sample = replace(
                sample, rows=sample.rows[torch.randperm(len(sample.rows), generator=generator, device="cpu")]
            )
        return read_units(self.tensors, layer, replace(sample, rows=sample.rows[:rows]))


def in_sample_residuals(triples: Triples, positions: Iterable[int]) -> dict[int, Residual]:
    residuals = {}
    for position, x, y in triples.iterate(positions):
        (fit,) = fit_ridge(x, y, (_TINY_PENALTY,))
        residuals[position] = fit.residual(x, y)
    return residuals


def choose_penalties(triples: Triples) -> dict[int, float]:
    shares = {}
    for position, x, y in triples.iterate(sorted(set(evenly_spaced(triples.positions, _MAX_PENALTY_POSITIONS)))):
        count = count_fitted_rows(len(x))
        shares[position] = choose_penalty(x[:count], y[:count])
    return shares


def held_out_row_residuals(
    triples: Triples, shares: Mapping[int, float], positions: Iterable[int]
) -> dict[int, Residual]:
    """Return the residuals on the held-out fifth of the rows at every position. The penalty is median(`shares`)."""
    share = median_low(shares.values())
    residuals = {}
    for position, x, y in triples.iterate(positions):
        count = count_fitted_rows(len(x))
        (fit,) = fit_ridge(x[:count], y[:count], (share,))
        residuals[position] = fit.residual(x[count:], y[count:])
    return residuals


def held_out_layer_residuals(triples: Triples, shares: Mapping[int, float]) -> dict[int, Residual]:
    """Hold out groups of adjacent layers in turn, and return the residuals at every position.

    The map is fitted to positions that share no layer with the held-out group. Its penalty is the median of `shares` at
    these positions. The result is empty for fewer than 8 layers.
    """
    positions = list(triples.positions)
    count = min(MAX_FOLDS, len(positions) // _MIN_FOLD_LAYERS)
    if count < 2:
        return {}
    folds = [[int(position) for position in fold] for fold in np.array_split(positions, count)]
    sums = [_moments(triples, fold[1:-1]) for fold in folds]
    residuals: dict[int, Residual] = {}
    for number, fold in enumerate(folds):
        apart = [share for position, share in shares.items() if position < fold[0] - 1 or position > fold[-1] + 1]
        others = reduce(add, (each for other, each in enumerate(sums) if other != number))
        (fit,) = others.fit((median_low(apart or [PENALTIES[1]]),))
        residuals |= {position: fit.residual(x, y) for position, x, y in triples.iterate(fold, _ROWS_PER_LAYER)}
    return residuals


def _moments(triples: Triples, positions: Iterable[int]) -> Moments:
    return reduce(add, (Moments.from_rows(x, y) for _, x, y in triples.iterate(positions, _ROWS_PER_LAYER)))


_GROUPS = 5


def predict_layer(stack: Stack, layer: int) -> dict[str, Tensor]:
    """Predict the weights of `layer` from its neighbors by cross-fitting, and return them by parameter name.

    Only weights with the same shape in all layers and at least 10 rows are predicted. Raises `MeasureError` if no
    weight has the same shape in all layers, or if weights are not finite.
    """
    tensors = StackTensors(stack)
    types = find_tensor_types(tensors, "prediction")
    width = stream_width(types)
    weights = layer_weights(stack, layer)
    return {
        kind.name: _predict_tensor(stack, layer, kind, width).to(weights[kind.name].dtype).to(weights[kind.name].device)
        for kind in types
        if to_units(weights[kind.name], width).shape[0] >= MIN_ROWS
    }


def _predict_tensor(stack: Stack, layer: int, kind: TensorType, width: int) -> Tensor:
    neighbors = [each for each in (layer - 1, layer + 1) if 0 <= each < stack.depth]
    x = torch.cat([_read_matrix(stack, each, kind, width) for each in neighbors], dim=1)
    y = _read_matrix(stack, layer, kind, width)
    # In random order, so that a group is not a run of units such as one head.
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(len(y)), device="cpu")
    share = choose_penalty(x[order], y[order])
    predicted = torch.empty_like(y)
    for group in order.tensor_split(_GROUPS):
        others = torch.ones(len(y), dtype=torch.bool, device="cpu")
        others[group] = False
        (fit,) = fit_ridge(x[others], y[others], (share,))
        predicted[group] = fit.predict(x[group])
    return from_units(predicted, kind.shape, width)


def _read_matrix(stack: Stack, layer: int, kind: TensorType, width: int) -> Tensor:
    stored = layer_weights(stack, layer)[kind.name]
    matrix = to_float64_cpu(to_units(stored, width))
    if not matrix.isfinite().all():
        raise non_finite_error(layer, kind.name)
    return matrix
