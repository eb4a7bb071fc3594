"""Prediction of a layer's weights from its neighbors by ridge regression: R2 in sample and held out.

The rows of [W_{l-1}, W_{l+1}] predict the same rows of W_l (units of `layerwise.measure.weights.tensors`). R2 = 1 - sum
of squared errors / sum of squares about the *training* mean; the penalty is chosen on training rows.

    in sample        all rows, hardly a penalty; p / (n - 1) on pure noise, 1 with more predictors than rows
    held-out rows    fitted to four fifths of the rows; `predict_layer` is cross-fitted in five groups
    held-out layers  one map, fitted to triples without the predicted layer. *Variants* shuffle layers or units
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from statistics import median_low

import numpy as np
import torch
from torch import Tensor

from layerwise.measure.stats.float64 import exact_on_cpu
from layerwise.measure.stats.null_comparison import evenly_spaced
from layerwise.measure.stats.ridge import SHARES, Moments, Residual, best_share, fits, inner_rows
from layerwise.measure.weights.tensors import (
    StackTensors,
    TensorType,
    UnitSample,
    as_units,
    from_units,
    not_finite,
    stream_width,
    tensor_types,
    units,
)
from layerwise.stack import Stack
from layerwise.stack.weights import layer_weights

FEWEST_ROWS = 10
"""Units below which a tensor type is not regressed: a fifth of a fifth must be left to choose the penalty by."""

MOST_FOLDS = 3
"""Groups of neighbouring layers that are held out in turn; the sums of each are held in memory."""

_FOLD = 3

_ROWS_A_LAYER = 512

_CHOOSING = 3

_HARDLY = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class Triples:
    """One tensor type's triples of successive layers, in some order and with units in place or permuted.

    `order` gives the layer at each position of depth; `permuted` seeds the units' permutations.
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
        """p / (n - 1): the R2 in sample of noise, at most 1."""
        return min(1.0, 2 * len(self.sample.columns) / (len(self.sample.rows) - 1))

    def walk(self, positions: Iterable[int], rows: int | None = None) -> Iterator[tuple[int, Tensor, Tensor]]:
        """Yield every position with the first `rows` of predictors (rows, 2 width) and targets (rows, width)."""
        held: dict[int, Tensor] = {}
        for position in positions:
            near = (position - 1, position, position + 1)
            held = {each: matrix for each, matrix in held.items() if each in near}
            held = {each: held[each] if each in held else self._matrix(each, rows) for each in near}
            before, here, after = held.values()
            yield position, torch.cat((before, after), dim=1), here

    def _matrix(self, position: int, rows: int | None) -> Tensor:
        layer = self.order[position]
        sample = self.sample
        if self.permuted is not None:
            generator = torch.Generator().manual_seed(self.permuted + layer)
            sample = replace(
                sample, rows=sample.rows[torch.randperm(len(sample.rows), generator=generator, device="cpu")]
            )
        return units(self.tensors, layer, replace(sample, rows=sample.rows[:rows]))


def in_sample(triples: Triples, positions: Iterable[int]) -> dict[int, Residual]:
    residuals = {}
    for position, x, y in triples.walk(positions):
        (fit,) = fits(x, y, (_HARDLY,))
        residuals[position] = fit.residual(x, y)
    return residuals


def chosen_shares(triples: Triples) -> dict[int, float]:
    shares = {}
    for position, x, y in triples.walk(sorted(set(evenly_spaced(triples.positions, _CHOOSING)))):
        kept = inner_rows(len(x))
        shares[position] = best_share(x[:kept], y[:kept])
    return shares


def held_out_rows(triples: Triples, shares: Mapping[int, float], positions: Iterable[int]) -> dict[int, Residual]:
    """Return the residual at every position on the held-out fifth of the rows; the penalty is the median of `shares`.

    The held-out units are the same at every position, so they choose no penalty.
    """
    share = median_low(shares.values())
    residuals = {}
    for position, x, y in triples.walk(positions):
        kept = inner_rows(len(x))
        (fit,) = fits(x[:kept], y[:kept], (share,))
        residuals[position] = fit.residual(x[kept:], y[kept:])
    return residuals


def held_out_layers(triples: Triples, shares: Mapping[int, float]) -> dict[int, Residual]:
    """Return the residual at every position of a map fitted to positions that share no layer with its group.

    The penalty of a group is the median of the `shares` of such positions. Empty for fewer than 8 layers.
    """
    positions = list(triples.positions)
    count = min(MOST_FOLDS, len(positions) // _FOLD)
    if count < 2:
        return {}
    folds = [[int(position) for position in fold] for fold in np.array_split(positions, count)]
    sums = [_moments(triples, fold[1:-1]) for fold in folds]
    residuals: dict[int, Residual] = {}
    for number, fold in enumerate(folds):
        apart = [share for position, share in shares.items() if position < fold[0] - 1 or position > fold[-1] + 1]
        others = reduce(add, (each for other, each in enumerate(sums) if other != number))
        (fit,) = others.fits((median_low(apart or [SHARES[1]]),))
        residuals |= {position: fit.residual(x, y) for position, x, y in triples.walk(fold, _ROWS_A_LAYER)}
    return residuals


def _moments(triples: Triples, positions: Iterable[int]) -> Moments:
    return reduce(add, (Moments.of(x, y) for _, x, y in triples.walk(positions, _ROWS_A_LAYER)))


_GROUPS = 5


def predict_layer(stack: Stack, layer: int) -> dict[str, Tensor]:
    """Return the predicted weights of `layer` by parameter name, with stored shapes and dtype; nothing is random.

    Only tensor types of one shape in all layers are predicted. Raises `MeasureError` for layers of unlike
    shapes, and weights that are not finite.
    """
    tensors = StackTensors(stack)
    types = tensor_types(tensors, "prediction")
    width = stream_width(types)
    own = layer_weights(stack, layer)
    return {
        kind.name: _predicted(stack, layer, kind, width).to(own[kind.name].dtype).to(own[kind.name].device)
        for kind in types
        if as_units(own[kind.name], width).shape[0] >= FEWEST_ROWS
    }


def _predicted(stack: Stack, layer: int, kind: TensorType, width: int) -> Tensor:
    neighbours = [each for each in (layer - 1, layer + 1) if 0 <= each < stack.depth]
    x = torch.cat([_matrix(stack, each, kind, width) for each in neighbours], dim=1)
    y = _matrix(stack, layer, kind, width)
    # In a fixed random order, so that a group is not a run of neighbouring units such as one head.
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(len(y)), device="cpu")
    share = best_share(x[order], y[order])
    predicted = torch.empty_like(y)
    for group in order.tensor_split(_GROUPS):
        others = torch.ones(len(y), dtype=torch.bool, device="cpu")
        others[group] = False
        (fit,) = fits(x[others], y[others], (share,))
        predicted[group] = fit.predict(x[group])
    return from_units(predicted, kind.shape, width)


def _matrix(stack: Stack, layer: int, kind: TensorType, width: int) -> Tensor:
    stored = layer_weights(stack, layer)[kind.name]
    matrix = exact_on_cpu(as_units(stored, width))
    if not matrix.isfinite().all():
        raise not_finite(layer, kind.name)
    return matrix
