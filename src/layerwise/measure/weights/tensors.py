"""Weight tensors of all layers, read in float64, and statistics of them pooled over depth.

A tensor type is a weight with two or more axes, identified by its path inside the layer (`mlp.gate_proj.weight`). It is
reshaped to a matrix: the columns are the coordinates of the residual stream, and the rows are called units.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from layerwise.errors import MeasureError, UnsupportedModelError
from layerwise.measure.stats.estimate import Bounded, Numbers
from layerwise.measure.stats.float64 import to_float64_cpu
from layerwise.measure.stats.statistics import mean_interval
from layerwise.results.rows import Score
from layerwise.stack import Stack
from layerwise.stack.blocks import block_list
from layerwise.stack.quantization import refuse_quantized
from layerwise.stack.weights import make_random_init, weight_rows

_CELLS = 1 << 20

_MAX_COORDINATES = 1024

_MAX_UNITS = 4096


@dataclass(frozen=True, slots=True)
class TensorType:
    """A weight of a layer: its path inside the layer, and its shape, which is the same in every layer."""

    name: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StackTensors:
    stack: Stack

    @property
    def depth(self) -> int:
        return self.stack.depth

    def shapes(self, layer: int) -> Mapping[str, tuple[int, ...]]:
        block = block_list(self.stack.model, self.stack.path)[layer]
        refuse_quantized(block, "compare weights")
        weights = block.named_parameters()
        return {name: tuple(w.shape) for name, w in weights if w.ndim >= 2 and w.is_floating_point()}

    def rows(self, layer: int, name: str, start: int, stop: int) -> Tensor:
        return weight_rows(self.stack, layer, name, start, stop)


def random_tensors(stack: Stack, seed: int) -> StackTensors | None:
    try:
        return StackTensors(make_random_init(stack, seed))
    except UnsupportedModelError:
        return None


def find_tensor_types(tensors: StackTensors, measure: str) -> tuple[TensorType, ...]:
    """Find the tensor types with the same shape in every layer; raise `MeasureError` if there are none."""
    first = tensors.shapes(0)
    others = [tensors.shapes(layer) for layer in range(1, tensors.depth)]
    types = tuple(
        TensorType(name, shape)
        for name, shape in first.items()
        if math.prod(shape) and all(each.get(name) == shape for each in others)
    )
    if not types:
        raise MeasureError(
            f"{measure} requires a weight matrix with the same name and shape in all {tensors.depth} layers. This "
            f"model has none, so omit {measure}."
        )
    return types


def compute_gram(tensors: StackTensors, kind: TensorType) -> NDArray[np.float64]:
    """Return the inner products <W_i, W_j> of all pairs of layers, (depth, depth), in float64.

    The layers are read in slices, which together are at most as large as the tensor of one layer. Raises `MeasureError`
    if weights are not finite.
    """
    length, *others = kind.shape
    by_row = math.prod(others)
    step = max(1, min(length // tensors.depth, _CELLS // (tensors.depth * by_row)))
    total = np.zeros((tensors.depth, tensors.depth))
    for start in range(0, length, step):
        stop = min(start + step, length)
        # Filled in place, because stacking a list of slices would double the memory.
        part = torch.empty(tensors.depth, (stop - start) * by_row, dtype=torch.float64, device="cpu")
        for layer in range(tensors.depth):
            part[layer] = tensors.rows(layer, kind.name, start, stop).reshape(-1).cpu()
        total += (part @ part.T).numpy()
    for layer in range(tensors.depth):
        if not np.isfinite(total[layer, layer]):
            raise non_finite_error(layer, kind.name)
    return total


def stream_width(types: Sequence[TensorType]) -> int:
    """Return the width of the residual stream: the most frequent axis length (if tied, the smallest).

    >>> stream_width([TensorType("q", (8, 8)), TensorType("k", (2, 8)), TensorType("down", (8, 24))])
    8
    """
    lengths = Counter(length for kind in types for length in set(kind.shape))
    return min(lengths, key=lambda length: (-lengths[length], length))


def stream_axis(shape: Sequence[int], width: int) -> int:
    return max((axis for axis, length in enumerate(shape) if length == width), default=len(shape) - 1)


@dataclass(frozen=True, slots=True, eq=False)
class UnitSample:
    """The `rows` (in random order) and `columns` of a weight, as a matrix (units, `width`), to read in every layer."""

    kind: TensorType
    width: int
    rows: Tensor
    columns: Tensor


def sample_units(kind: TensorType, width: int, seed: int) -> UnitSample:
    """Sample rows and columns of a weight, seen as a matrix whose rows have the `width` of the residual stream.

    At most `_MAX_COORDINATES` columns are sampled, and the same fraction of the rows, but at most `_MAX_UNITS` rows.
    """
    generator = torch.Generator().manual_seed(seed)
    across = kind.shape[stream_axis(kind.shape, width)]
    along = math.prod(kind.shape) // across
    columns = torch.randperm(across, generator=generator, device="cpu")[:_MAX_COORDINATES].sort().values
    most = min(_MAX_UNITS, -(-along * len(columns) // across))
    return UnitSample(kind, width, torch.randperm(along, generator=generator, device="cpu")[:most], columns)


def read_units(tensors: StackTensors, layer: int, sample: UnitSample) -> Tensor:
    """Return the sampled weights of a layer, (rows, columns), in float64. Raise `MeasureError` if any is not finite."""
    stored = to_units(tensors.rows(layer, sample.kind.name, 0, sample.kind.shape[0]), sample.width)
    selected = stored[sample.rows.to(stored.device)]
    if len(sample.columns) < stored.shape[1]:
        selected = selected[:, sample.columns.to(stored.device)]
    matrix = to_float64_cpu(selected)
    if not matrix.isfinite().all():
        raise non_finite_error(layer, sample.kind.name)
    return matrix


def to_units(tensor: Tensor, width: int) -> Tensor:
    """Reshape `tensor` to a matrix with rows of length `width`, or of its last axis if no axis has this length."""
    axis = stream_axis(tensor.shape, width)
    return tensor.movedim(axis, -1).reshape(-1, tensor.shape[axis])


def from_units(matrix: Tensor, shape: Sequence[int], width: int) -> Tensor:
    axis = stream_axis(shape, width)
    others = [length for dimension, length in enumerate(shape) if dimension != axis]
    return matrix.reshape(*others, shape[axis]).movedim(-1, axis)


def non_finite_error(layer: int, name: str) -> MeasureError:
    return MeasureError(
        f"{name} of layer {layer} must be finite, got NaN or infinity. Check the checkpoint and its dtype."
    )


Orders = NDArray[np.int64]
"""Random orders of the layers, (orders, depth)."""

_ORDERS = 400


def draw_orders(depth: int, seed: int) -> Orders:
    generator = np.random.default_rng([seed, depth])
    return generator.permuted(np.tile(np.arange(depth), (_ORDERS, 1)), axis=1)


ALL = "all"

Summands = tuple[Numbers, Numbers]
"""The numerators and denominators of a ratio, (positions,) each; a position is a pair or triple of layers."""

Fractions = Mapping[int, tuple[float, float]]
"""The numerator and denominator of a ratio for each layer."""

_NULL_POSITIONS = 6


def part_column(name: str) -> str | None:
    return None if name == ALL else name


def pool_ratios(summands: Mapping[str, Summands]) -> dict[str, Bounded]:
    """Compute the ratio of sums over positions (pairs or triples of layers) for each tensor type and for `all` types.

        ratio = sum_l numerator[l] / sum_l denominator[l]

    For `all`, the summands of each type are first divided by its total denominator. Student t intervals are over
    positions with nonzero denominators, for `all` over positions and types.

    >>> pool_ratios({"q": (np.array([1.0, 2.0]), np.array([2.0, 4.0]))})["q"]
    (0.5, None, None)
    """
    nonzero = {
        name: (above[below > 0], below[below > 0]) for name, (above, below) in summands.items() if (below > 0).any()
    }
    ratios = {name: mean_interval(*sums) for name, sums in nonzero.items()}
    if nonzero:
        scaled = [(above / below.sum(), below / below.sum()) for above, below in nonzero.values()]
        above, below = (np.concatenate(sums) for sums in zip(*scaled, strict=True))
        ratios[ALL] = mean_interval(above, below)
    return ratios


def pool_complements(by_type: Mapping[str, Fractions]) -> dict[str, Bounded]:
    """Pool `1 - numerator / denominator` over layers, for each tensor type and for `all` types."""
    columns = {name: np.array(list(layers.values())).reshape(-1, 2) for name, layers in by_type.items()}
    ratios = pool_ratios({name: (sums[:, 0], sums[:, 1]) for name, sums in columns.items()})
    return {
        name: (1.0 - value, None if high is None else 1.0 - high, None if low is None else 1.0 - low)
        for name, (value, low, high) in ratios.items()
    }


def complement_rows(
    measure: str, metric: str, by_type: Mapping[str, Fractions], nulls: Mapping[str, Mapping[str, Bounded]]
) -> Iterator[Score]:
    """Yield the rows of a metric that is 1 - numerator / denominator.

    Each layer has a row for each tensor type (`part`) and a row for their mean, with the baselines (`nulls`) of
    `all` types. Further rows are pooled over layers and have intervals and baselines.
    """
    for layer in dict.fromkeys(layer for fractions in by_type.values() for layer in fractions):
        values = {
            name: 1.0 - fractions[layer][0] / fractions[layer][1]
            for name, fractions in by_type.items()
            if layer in fractions and fractions[layer][1] > 0
        }
        for name, value in values.items():
            yield Score(measure, metric, value, part=name, layer=layer)
        if values:
            yield Score(measure, metric, sum(values.values()) / len(values), layer=layer)
            for null, pooled_null in nulls.items():
                if ALL in pooled_null:
                    yield Score(measure, metric, *pooled_null[ALL], against=null, layer=layer)
    for against, by_name in [(None, pool_complements(by_type)), *nulls.items()]:
        for name, bounded in by_name.items():
            yield Score(measure, metric, *bounded, part=part_column(name), against=against)


def evenly_spaced(positions: Sequence[int], most: int = _NULL_POSITIONS) -> list[int]:
    """Select at most `most` evenly spaced positions, including the first and the last.

    >>> evenly_spaced(range(1, 29))
    [1, 6, 12, 17, 23, 28]
    """
    count = min(most, len(positions))
    return [positions[round(step * (len(positions) - 1) / max(1, count - 1))] for step in range(count)]
