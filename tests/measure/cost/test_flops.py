"""What layers cost: the counter's numbers are those of a count by hand, and of twice the weights."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

from layerwise.errors import MeasureError
from layerwise.measure.cost import flops
from layerwise.measure.cost.flops import model_cost
from layerwise.plan.schedule import GrowthSchedule, Phase
from layerwise.plan.schedule.cost import ModelCost, layer_shares, share_of_uniform
from layerwise.stack import Stack, load
from train.tiny_models import VOCABULARY, WIDTH, tiny_llama, tiny_vit


def matrices(module: nn.Module) -> int:
    return sum(weight.numel() for weight in module.parameters() if weight.ndim > 1)


@pytest.mark.parametrize("length", [1, 6, 17])
def test_a_layer_costs_twice_its_weights_and_its_attention(length: int) -> None:
    model = tiny_llama()
    attention = 2 * 2 * length * WIDTH  # scores, and the mean of the values; a multiply-add is two operations
    cost = model_cost(load(model), length)
    assert cost.layers == (2 * matrices(model.model.layers[0]) + attention,) * 3
    assert cost.head == 2 * VOCABULARY * WIDTH
    assert cost.embedding == 0


def test_layers_are_counted_each_for_itself() -> None:
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**tiny_llama().config.to_dict()))
    mlp = model.model.layers[1].mlp
    mlp.gate_proj, mlp.up_proj, mlp.down_proj = nn.Linear(16, 80), nn.Linear(16, 80), nn.Linear(80, 16)
    cost = model_cost(load(model), 4)
    assert cost.layers[0] == cost.layers[2]
    assert cost.layers[1] - cost.layers[0] == 2 * 3 * 16 * (80 - 24)


def test_of_an_image_model_the_unit_is_an_image() -> None:
    model = tiny_vit()
    cost = model_cost(load(model))
    tokens, patches = 5, 4
    linear = 2 * matrices(model.vit.layers[0]) * tokens
    assert cost.layers == (linear + 2 * 2 * tokens * tokens * WIDTH,) * 3
    assert cost.embedding == 2 * matrices(model.vit.embeddings.patch_embeddings) * patches
    assert cost.head == 2 * 10 * WIDTH


def test_a_layer_that_the_counter_does_not_see_costs_twice_its_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    stack = load(tiny_llama())
    weights = sum(weight.numel() for weight in stack.block(0).parameters())
    own = Stack.apply

    def unseen(self: Stack, layer: int, *args: object) -> Tensor:
        return args[0] * 1.0 if layer == 1 else own(self, layer, *args)  # type: ignore[operator, return-value, arg-type]

    monkeypatch.setattr(Stack, "apply", unseen)
    cost = model_cost(stack, 6)
    assert cost.layers[1] == 2 * weights
    assert cost.layers[0] == cost.layers[2] > cost.layers[1]


def test_counting_changes_nothing() -> None:
    model = tiny_llama().train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model_cost(load(model), 6)
    assert model.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert all(weight.grad is None for weight in model.parameters())


def test_a_model_of_unknown_input_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    stack = load(tiny_llama())
    monkeypatch.setattr(flops, "example_inputs", lambda model, length: None)
    with pytest.raises(MeasureError, match="give its cost as a ModelCost"):
        model_cost(stack, 6)


def test_hand_made_schedules_have_the_shares_of_the_field() -> None:
    """1, 2/3, 1/3 and 0, on the cost of a real model."""
    cost = model_cost(load(tiny_llama()), 6)
    phase = Phase("middle", 0.5, (1,), embedding=False, head=False)
    assert layer_shares(phase, 3) == pytest.approx((1 / 3, 1, 2 / 3))
    assert layer_shares(Phase("kept", 0.5, (1,), embedding=False, head=False, cached=True), 3) == pytest.approx(
        (0, 1, 2 / 3)
    )
    schedule = GrowthSchedule("two", 3, (phase, Phase("all", 0.5, (0, 1, 2))))
    flat = ModelCost(cost.layers, embedding=0.0, head=0.0)
    assert share_of_uniform(schedule, flat) == pytest.approx((2 / 3 + 1) / 2)
