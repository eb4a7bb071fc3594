"""Norms and effective ranks of known layers, and of models compared with randomly initialized ones."""

import math

import pytest
import torch

from conftest import tiny_llama
from layerwise import load
from layerwise.errors import MeasureError
from layerwise.measure.weights.deltas import effective_rank, weight_norms
from layerwise.results.rows import Score
from layerwise.results.selection import Rows
from measure.planted import noise, planted_stack, stack_of_layers


def row(scores: list[Score], metric: str, layer: int, against: str | None = None) -> Score:
    (found,) = Rows(scores).where(metric=metric, layer=layer, against=against)
    return found


def test_the_effective_rank_weighs_directions_by_their_singular_values() -> None:
    matrix = torch.zeros(9, 7, dtype=torch.float64)
    matrix[:3, :3] = 2 * torch.eye(3)
    assert effective_rank(matrix) == pytest.approx(3)
    unequal = effective_rank(torch.diag(torch.tensor([3.0, 1.0], dtype=torch.float64)))
    assert unequal == pytest.approx(math.exp(-(0.75 * math.log(0.75) + 0.25 * math.log(0.25))))


def test_a_layer_is_all_its_matrices_that_are_not_zero() -> None:
    layers = [{"w": noise(1, 4 + n, 6, n)[0], "v": noise(1, 8, 5, n)[0], "zero": torch.zeros(4, 4)} for n in range(4)]
    scores = weight_norms(stack_of_layers(layers))
    matrices = [layers[1][name].double() for name in ("w", "v")]
    assert row(scores, "norm", 1).value == pytest.approx(math.sqrt(sum(float(m.square().sum()) for m in matrices)))
    assert row(scores, "effective_rank", 1).value == pytest.approx(sum(map(effective_rank, matrices)) / 2)
    assert {score.layer for score in scores} == {0, 1, 2, 3}


def test_a_trained_layer_leaves_the_range_of_the_random_twin() -> None:
    model = tiny_llama(seed=5)
    with torch.no_grad():
        # One strong direction, as training would leave.
        model.model.layers[3].mlp.up_proj.weight += 1.0
    scores = weight_norms(load(model))
    null = row(scores, "effective_rank", 2, "random_twin")
    assert null.low <= row(scores, "effective_rank", 2).value <= null.high
    assert row(scores, "effective_rank", 3).value < null.low
    assert row(scores, "norm", 3).value > row(scores, "norm", 3, "random_twin").high


def test_layers_without_matrices_are_refused() -> None:
    with pytest.raises(MeasureError, match="Layers must have weight matrices"):
        weight_norms(stack_of_layers([{"gain": torch.ones(4)} for _ in range(4)]))
    assert weight_norms(planted_stack({"w": noise(4, 10, 10)}))
