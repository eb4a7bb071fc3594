"""Seconds and bytes of a model."""

import pytest
import torch
from torch import Tensor, nn

from layerwise.errors import MeasureError
from layerwise.measure.cost.overhead import kept_bytes, overhead

INPUTS = {"states": torch.ones(4, 8), "labels": torch.zeros(4)}


class Pupil(nn.Module):
    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(layers))

    def forward(self, states: Tensor, labels: Tensor | None = None) -> object:
        for layer in self.layers:
            states = layer(states) ** 2
        return type("Output", (), {"loss": states.mean()})


def test_bytes_kept_are_those_of_the_activations() -> None:
    inputs_kept = INPUTS["states"].untyped_storage().nbytes()
    assert kept_bytes(Pupil(1), INPUTS) == 2 * inputs_kept
    assert kept_bytes(Pupil(3), INPUTS) == 6 * inputs_kept


def test_a_round_times_every_model_and_changes_no_weight() -> None:
    models = {"one": Pupil(1), "three": Pupil(3)}
    before = [tensor.clone() for model in models.values() for tensor in model.parameters()]
    found = overhead(models, INPUTS, rounds=6)
    assert {name: (each.step_seconds.shape, each.pass_seconds.shape) for name, each in found.items()} == {
        "one": ((6,), (6,)),
        "three": ((6,), (6,)),
    }
    assert all((each.step_seconds > 0).all() for each in found.values())
    after = [tensor for model in models.values() for tensor in model.parameters()]
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))
    assert all(tensor.grad is None for tensor in after)


def test_too_few_rounds() -> None:
    with pytest.raises(MeasureError, match="take 6 or more"):
        overhead({"one": Pupil(1)}, INPUTS, rounds=5)
