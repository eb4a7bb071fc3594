import math
import weakref
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from layerwise.errors import MeasureError
from layerwise.measure.cost.memory import LiveBytes
from layerwise.measure.weights.deltas import delta_rows, norm_rows
from layerwise.measure.weights.predictability import predictability_rows
from layerwise.measure.weights.tensors import (
    StackTensors,
    TensorType,
    compute_gram,
    find_tensor_types,
    from_units,
    read_units,
    sample_units,
    stream_width,
    to_units,
)
from layerwise.results.rows import Score
from measure.planted import noise, planted_stack, stack_of_layers

SHAPES = {"up": (24, 12), "down": (12, 24), "mix": (12, 12)}
DEPTH = 9


class CountedTensors:
    depth = DEPTH

    def __init__(self) -> None:
        self.alive = 0
        self.most = 0

    def shapes(self, layer: int) -> Mapping[str, tuple[int, ...]]:
        return SHAPES

    def rows(self, layer: int, name: str, start: int, stop: int) -> Tensor:
        generator = np.random.default_rng([layer, *map(ord, name)])
        array = generator.standard_normal(SHAPES[name])[start:stop].copy()
        self.alive += array.size
        self.most = max(self.most, self.alive)
        weakref.finalize(array, self._freed, array.size)
        return torch.from_numpy(array)

    def _freed(self, size: int) -> None:
        self.alive -= size


LAYER = sum(map(math.prod, SHAPES.values()))


@pytest.mark.parametrize("rows", [delta_rows, predictability_rows, norm_rows])
def test_weight_measures_load_at_most_two_layers(rows: Callable[[StackTensors], Iterator[Score]]) -> None:
    tensors = CountedTensors()
    assert len(list(rows(tensors))) >= 2 * DEPTH
    assert tensors.most <= 2 * LAYER


@pytest.mark.parametrize("rows", [delta_rows, norm_rows])
def test_float64_copies_are_at_most_two_layers(
    rows: Callable[[StackTensors], Iterator[Score]],
) -> None:
    with LiveBytes() as memory:
        assert len(list(rows(CountedTensors()))) >= 2 * DEPTH
    assert 0 < memory.most <= 2 * LAYER * 8


def test_only_matrices_of_equal_shape_are_compared() -> None:
    layers = [{"even": torch.ones(4, 4), "grows": torch.ones(4 + n, 4), "gain": torch.ones(4)} for n in range(5)]
    layers[2]["extra"] = torch.ones(4, 4)
    types = find_tensor_types(StackTensors(stack_of_layers(layers)), "deltas")
    assert types == (TensorType("even", (4, 4)),)


def test_layers_without_a_common_matrix_are_rejected() -> None:
    layers = [{"grows": torch.ones(4 + n, 4)} for n in range(5)]
    with pytest.raises(MeasureError, match="deltas requires a weight matrix with the same name and shape in all 5"):
        find_tensor_types(StackTensors(stack_of_layers(layers)), "deltas")


@pytest.mark.parametrize("shape", [(3, 5), (40, 7), (4, 3, 5)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gram_matrix_matches_full_tensors(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    weights = torch.randn(6, *shape, generator=torch.Generator().manual_seed(0)).to(dtype)
    tensors = StackTensors(planted_stack({"w": weights}, dtype))
    flat = weights.double().flatten(1)
    assert np.allclose(compute_gram(tensors, TensorType("w", shape)), (flat @ flat.T).numpy(), rtol=1e-12)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_non_finite_weights_are_named(value: float) -> None:
    weights = noise(5, 6, 6)
    weights[3, 2, 1] = value
    tensors = StackTensors(planted_stack({"mlp": weights}))
    (kind,) = find_tensor_types(tensors, "deltas")
    with pytest.raises(MeasureError, match="mlp of layer 3 must be finite"):
        compute_gram(tensors, kind)
    with pytest.raises(MeasureError, match="mlp of layer 3 must be finite"):
        read_units(tensors, 3, sample_units(kind, 6, 0))


@given(shape=st.lists(st.integers(1, 5), min_size=2, max_size=4), width=st.integers(1, 5))
def test_units_can_be_inverted(shape: list[int], width: int) -> None:
    tensor = torch.arange(math.prod(shape)).reshape(shape)
    assert torch.equal(from_units(to_units(tensor, width), shape, width), tensor)


def test_columns_of_units_are_the_residual_stream() -> None:
    types = [TensorType(name, shape) for name, shape in SHAPES.items()]
    assert stream_width(types) == 12
    experts = torch.arange(2 * 3 * 4).reshape(2, 3, 4)
    assert torch.equal(to_units(experts, 3)[1], experts[0, :, 1])
    assert to_units(torch.zeros(12, 24), 12).shape == (24, 12)
