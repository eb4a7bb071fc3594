"""The weights of a stack, read one tensor type at a time and at most two layers at once, in float64.

A tensor type is a weight of two or more axes by its path inside the block (`mlp.gate_proj.weight`).

    gram     inner products of all pairs of layers, (depth, depth), computed from thin slices
    units    one layer's matrix as (units, width); columns are residual-stream coordinates (`stream_width`)

The nulls are the same layers in random orders (`shuffled_orders`), shared by all types.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from layerwise.errors import MeasureError, UnsupportedModel
from layerwise.measure.stats.float64 import exact_on_cpu
from layerwise.stack import Stack
from layerwise.stack.blocks import block_list
from layerwise.stack.quantization import refuse_quantized
from layerwise.stack.weights import random_twin, weight_rows

_CELLS = 1 << 20

_WIDEST = 1024

_MOST_UNITS = 4096


@dataclass(frozen=True, slots=True)
class TensorType:
    """One weight of the block: its path inside it, and the shape it has in every layer."""

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


def twin_tensors(stack: Stack, seed: int) -> StackTensors | None:
    try:
        return StackTensors(random_twin(stack, seed))
    except UnsupportedModel:
        return None


def tensor_types(tensors: StackTensors, measure: str) -> tuple[TensorType, ...]:
    """Return the tensor types of equal shape in every layer, in the order of the first layer.

    Raises `MeasureError` naming `measure` if no type is left.
    """
    first = tensors.shapes(0)
    others = [tensors.shapes(layer) for layer in range(1, tensors.depth)]
    types = tuple(
        TensorType(name, shape)
        for name, shape in first.items()
        if math.prod(shape) and all(each.get(name) == shape for each in others)
    )
    if not types:
        shapes = [f"layer {layer}: {dict(tensors.shapes(layer))}" for layer in (0, 1)]
        raise MeasureError(
            f"{measure} compares weights between layers, and no weight matrix has the same name and shape in all "
            f"{tensors.depth} layers ({'; '.join(shapes)}): leave it out for this model"
        )
    return types


def gram(tensors: StackTensors, kind: TensorType) -> NDArray[np.float64]:
    """Return the inner products of all pairs of layers, sum over entries of W_i * W_j: (depth, depth), float64.

    Slices of all layers together are no larger than one layer's tensor. Raises `MeasureError` for non-finite weights.
    """
    length, *others = kind.shape
    by_row = math.prod(others)
    step = max(1, min(length // tensors.depth, _CELLS // (tensors.depth * by_row)))
    total = np.zeros((tensors.depth, tensors.depth))
    for start in range(0, length, step):
        stop = min(start + step, length)
        # Filled in place: a list of slices and their stack would be twice the memory.
        part = torch.empty(tensors.depth, (stop - start) * by_row, dtype=torch.float64, device="cpu")
        for layer in range(tensors.depth):
            part[layer] = tensors.rows(layer, kind.name, start, stop).reshape(-1).cpu()
        total += (part @ part.T).numpy()
    for layer in range(tensors.depth):
        if not np.isfinite(total[layer, layer]):
            raise not_finite(layer, kind.name)
    return total


def stream_width(types: Sequence[TensorType]) -> int:
    """Return the width of the residual stream: the axis length that most types have, the smallest of several.

    >>> stream_width([TensorType("q", (8, 8)), TensorType("k", (2, 8)), TensorType("down", (8, 24))])
    8
    """
    lengths = Counter(length for kind in types for length in set(kind.shape))
    return min(lengths, key=lambda length: (-lengths[length], length))


def stream_axis(shape: Sequence[int], width: int) -> int:
    return max((axis for axis, length in enumerate(shape) if length == width), default=len(shape) - 1)


@dataclass(frozen=True, slots=True, eq=False)
class UnitSample:
    """The units (in random order) and residual-stream coordinates of a tensor type that are read in every layer."""

    kind: TensorType
    width: int
    rows: Tensor
    columns: Tensor


def unit_sample(kind: TensorType, width: int, seed: int) -> UnitSample:
    """Sample the units and coordinates of `kind` for a residual stream of `width`.

    Up to `_WIDEST` coordinates all are read, otherwise that many and the same share of units, at most `_MOST_UNITS`.
    """
    generator = torch.Generator().manual_seed(seed)
    across = kind.shape[stream_axis(kind.shape, width)]
    along = math.prod(kind.shape) // across
    columns = torch.randperm(across, generator=generator, device="cpu")[:_WIDEST].sort().values
    most = min(_MOST_UNITS, -(-along * len(columns) // across))
    return UnitSample(kind, width, torch.randperm(along, generator=generator, device="cpu")[:most], columns)


def units(tensors: StackTensors, layer: int, sample: UnitSample) -> Tensor:
    """Return the sampled (units, coordinates) of a layer in float64; raise `MeasureError` if they are not finite."""
    stored = as_units(tensors.rows(layer, sample.kind.name, 0, sample.kind.shape[0]), sample.width)
    chosen = stored[sample.rows.to(stored.device)]
    if len(sample.columns) < stored.shape[1]:
        chosen = chosen[:, sample.columns.to(stored.device)]
    matrix = exact_on_cpu(chosen)
    if not matrix.isfinite().all():
        raise not_finite(layer, sample.kind.name)
    return matrix


def as_units(tensor: Tensor, width: int) -> Tensor:
    """`tensor` as (units, width); where the tensor has no axis of that length, by its last one."""
    axis = stream_axis(tensor.shape, width)
    return tensor.movedim(axis, -1).reshape(-1, tensor.shape[axis])


def from_units(matrix: Tensor, shape: Sequence[int], width: int) -> Tensor:
    axis = stream_axis(shape, width)
    turned = [length for dimension, length in enumerate(shape) if dimension != axis]
    return matrix.reshape(*turned, shape[axis]).movedim(-1, axis)


def not_finite(layer: int, name: str) -> MeasureError:
    return MeasureError(
        f"{name} of layer {layer} holds values that are not finite, so nothing can be said of its weights: "
        "the checkpoint is broken, or was saved in a dtype too narrow for it"
    )


Orders = NDArray[np.int64]
"""Layers by position, (orders, depth)."""

_ORDERS = 400


def shuffled_orders(depth: int, seed: int) -> Orders:
    generator = np.random.default_rng([seed, depth])
    return generator.permuted(np.tile(np.arange(depth), (_ORDERS, 1)), axis=1)
