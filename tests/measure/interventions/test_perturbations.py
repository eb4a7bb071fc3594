"""Perturbations move the weights by exactly the requested size along one line."""

import itertools
import math
import weakref

import pytest
import torch
from torch import Tensor

from layerwise.errors import MeasureError
from layerwise.measure.interventions import perturbations
from layerwise.measure.interventions.perturbations import (
    STRATEGIES,
    Perturbations,
    Strategy,
    read_matrices,
    relative_size,
)
from layerwise.measure.stats.float64 import to_float64
from layerwise.stack import Stack
from layerwise.stack.weights import layer_weights
from measure.planted import noise, planted_stack, stack_of_layers

STACK = planted_stack({"mlp": noise(5, 24, 16), "attn": 3 * noise(5, 8, 8, seed=1), "gain": noise(5, 7, 1)[:, :, 0]})


MOVES = Perturbations(STACK, 0)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_size_is_the_size(strategy: Strategy) -> None:
    for layer, size in itertools.product(range(STACK.depth), (0.05, 0.3, 0.5, 1.0)):
        weights = read_matrices(STACK, layer)
        assert "gain" not in weights
        if not MOVES.exists(layer, strategy, size):
            assert (strategy, size) == ("predict", 1.0)
            continue
        moved = MOVES.at(layer, strategy, size)
        assert moved.keys() == weights.keys()
        assert relative_size(moved, weights) == pytest.approx(size, rel=1e-9)


def test_each_layer_is_widened_once_on_the_way_and_three_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    widened: list[weakref.ref[Tensor]] = []

    def reading(stack: Stack, layer: int) -> dict[str, torch.nn.Parameter]:
        read.append(layer)
        return layer_weights(stack, layer)

    def widening(values: Tensor) -> Tensor:
        result = to_float64(values)
        widened.append(weakref.ref(result))
        return result

    stack = planted_stack({"mlp": noise(6, 8, 8).float(), "attn": noise(6, 4, 4, seed=1).float()})
    monkeypatch.setattr(perturbations, "layer_weights", reading)
    monkeypatch.setattr(perturbations, "to_float64", widening)
    monkeypatch.setattr(perturbations, "predict_layer", lambda stack, layer: {})
    moves = Perturbations(stack, 0)
    points = list(itertools.product(range(stack.depth), STRATEGIES, (0.05, 0.1, 0.2, 0.3)))
    there = [point for point in points if moves.exists(*point)]
    assert sorted(read) == list(range(stack.depth))
    read.clear()
    for point in there:
        moves.at(*point)
    assert sorted(read) == list(range(stack.depth))
    assert sum(each() is not None for each in widened) <= 3 * 2


def test_scaling_by_a_tenth_is_the_published_nine_tenths() -> None:
    weights, moved = read_matrices(STACK, 1), MOVES.at(1, "scale", 0.1)
    assert all(torch.allclose(moved[name], 0.9 * weights[name]) for name in weights)
    assert all(not moved.any() for moved in MOVES.at(1, "scale", 1.0).values())


def test_noise_is_in_proportion_and_drawn_from_the_seed() -> None:
    weights, moved = read_matrices(STACK, 1), MOVES.at(1, "noise", 0.2)
    for name, weight in weights.items():
        assert relative_size({name: moved[name]}, {name: weight}) == pytest.approx(0.2)
        assert torch.equal(moved[name], Perturbations(STACK, 0).at(1, "noise", 0.2)[name])
        assert not torch.equal(moved[name], Perturbations(STACK, 1).at(1, "noise", 0.2)[name])
        further = MOVES.at(1, "noise", 0.4)[name] - weight
        torch.testing.assert_close(further, 2 * (moved[name] - weight))


def test_low_rank_is_a_truncation_and_at_most_a_step_of_one_rank_from_it() -> None:
    weight = read_matrices(STACK, 1)["mlp"]
    values = torch.linalg.svdvals(weight)
    # Singular values round by a unit of the largest per row, twice, plus a product over the columns in between.
    known = torch.finfo(torch.float64).eps * float(values[0]) * (2 * len(weight) + len(values))
    for gone in range(1, len(values)):
        # The size at which exactly this many of the smallest values vanish, and sizes within rounding of it.
        size = float(values[-gone:].norm() / values.norm())
        for near in (size, math.nextafter(size, 0), math.nextafter(size, 1)):
            moved = torch.linalg.svdvals(MOVES.at(1, "low_rank", near)["mlp"])
            torch.testing.assert_close(moved[:-gone], values[:-gone], rtol=0, atol=known)
            assert float(moved[-gone:].max()) <= known
        # Far from there no further value vanishes, and the one before has begun to shrink.
        moved = torch.linalg.svdvals(MOVES.at(1, "low_rank", size * 1.01)["mlp"])
        torch.testing.assert_close(moved[: -gone - 1], values[: -gone - 1], rtol=0, atol=known)
        assert float(moved[-gone:].min()) > known


def test_the_lines_lead_to_the_neighbours() -> None:
    for layer, sources in ((0, (1,)), (2, (1, 3)), (4, (3,))):
        own = read_matrices(STACK, layer)["mlp"]
        mean = torch.stack([read_matrices(STACK, other)["mlp"] for other in sources]).mean(dim=0)
        _on_a_line(own, mean, MOVES.at(layer, "interpolate", 0.3)["mlp"])
        before = read_matrices(STACK, layer - 1 if layer else 1)["mlp"]
        _on_a_line(own, before, MOVES.at(layer, "copy", 0.3)["mlp"])


def _on_a_line(start: Tensor, end: Tensor, point: Tensor) -> None:
    shares = (point - start) / (end - start)
    torch.testing.assert_close(shares, shares.median().expand_as(shares))
    assert 0 < float(shares.median()) < 1


def test_unlike_neighbours_have_no_line_between_them() -> None:
    draw = torch.Generator().manual_seed(0)
    layers = [{"w": torch.randn(4 + (layer == 1), 4, generator=draw)} for layer in range(4)]
    moves = Perturbations(stack_of_layers(layers), 0)
    assert not moves.exists(0, "copy", 0.1)
    assert not moves.exists(2, "interpolate", 0.1)
    assert moves.exists(3, "copy", 0.1)
    assert not moves.exists(3, "predict", 0.1), "it has no like neighbours either"


def test_weights_that_are_not_finite_are_refused_by_name() -> None:
    layers = [{"w": torch.eye(4)} for _ in range(4)]
    layers[2]["w"][1, 1] = float("nan")
    with pytest.raises(MeasureError, match="w of layer 2 must be finite"):
        Perturbations(stack_of_layers(layers), 0).at(2, "scale", 0.1)


def test_zeros_have_no_size_and_a_matrix_of_zeros_stays() -> None:
    nothing = {"w": torch.zeros(4, 4)}
    some = {"w": torch.zeros(4, 4), "v": torch.eye(4)}
    moves = Perturbations(stack_of_layers([nothing, some, some, some]), 0)
    assert not any(moves.exists(0, strategy, 0.1) for strategy in STRATEGIES)
    for strategy in ("scale", "noise", "low_rank"):
        moved = moves.at(2, strategy, 0.25)  # type: ignore[arg-type]
        assert not moved["w"].any()
        assert relative_size(moved, read_matrices(stack_of_layers([some]), 0)) == pytest.approx(0.25)
