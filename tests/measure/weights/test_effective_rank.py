"""Norms and effective ranks of known matrices, and of models compared with randomly initialized ones."""

import math

import pytest
import torch

from conftest import tiny_llama
from layerwise import load
from layerwise.errors import MeasureError
from layerwise.measure.weights.effective_rank import matrix_structure, weight_structure
from layerwise.results.rows import Score
from layerwise.results.selection import Rows
from measure.planted import noise, planted_stack, stack_of_layers


def row(scores: list[Score], metric: str, layer: int = 0, part: str | None = "w", against: str | None = None) -> Score:
    (found,) = Rows(scores).where(metric=metric, layer=layer, part=part, against=against)
    return found


def test_the_effective_rank_counts_equal_directions() -> None:
    matrix = torch.zeros(9, 7, dtype=torch.float64)
    matrix[:3, :3] = 2 * torch.eye(3)
    found = matrix_structure(matrix)
    assert found.effective_rank == pytest.approx(3)
    assert found.norm == pytest.approx(math.sqrt(12))


def test_the_effective_rank_weighs_directions_by_their_singular_values() -> None:
    found = matrix_structure(torch.diag(torch.tensor([3.0, 1.0], dtype=torch.float64)))
    assert found.effective_rank == pytest.approx(math.exp(-(0.75 * math.log(0.75) + 0.25 * math.log(0.25))))


def test_all_matrices_of_a_layer_together() -> None:
    weights = {"w": noise(4, 10, 10), "v": noise(4, 10, 20, 1)}
    scores = weight_structure(planted_stack(weights))
    total = math.sqrt(sum(float(each[1].double().square().sum()) for each in weights.values()))
    assert row(scores, "norm", 1, None).value == pytest.approx(total)
    ranks = [row(scores, "effective_rank", 1, name).value for name in weights]
    assert row(scores, "effective_rank", 1, None).value == pytest.approx(sum(ranks) / 2)


def test_a_model_stands_beside_its_random_twin() -> None:
    model = tiny_llama(seed=5)
    with torch.no_grad():
        # One strong direction, as training would leave.
        model.model.layers[3].mlp.up_proj.weight += 1.0
    scores = weight_structure(load(model))
    for layer in (2, 3):
        null = row(scores, "effective_rank", layer, "mlp.up_proj.weight", "random_twin")
        assert null.low <= null.value <= null.high
    assert row(scores, "effective_rank", 3, "mlp.up_proj.weight").value < null.low


def test_unlike_layers_and_zero_matrices_are_no_obstacle() -> None:
    layers = [{"w": noise(1, 4 + n, 6, n)[0], "zero": torch.zeros(4, 4)} for n in range(4)]
    scores = weight_structure(stack_of_layers(layers))
    assert {s.layer for s in scores} == {0, 1, 2, 3}
    assert {s.part for s in scores} == {"w", None}


def test_what_has_no_structure_is_refused() -> None:
    with pytest.raises(MeasureError, match="layers of this model have none"):
        weight_structure(stack_of_layers([{"gain": torch.ones(4)} for _ in range(4)]))
