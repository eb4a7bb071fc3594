"""A hybrid must keep one layer of each kind that its cache asks; layers that keep nothing may all go."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from torch import nn

from layerwise.errors import PlanError
from layerwise.plan import Plan
from layerwise.stack.checks.layer_types import refuse_loss_of_a_kind


def hybrid(*types: str) -> nn.Module:
    model = nn.Module()
    model.config = SimpleNamespace(layer_types=list(types))
    model.layers = nn.ModuleList([nn.Identity() for _ in types])
    return model


MODEL = hybrid("linear_attention", "full_attention", "mlp", "linear_attention")


@pytest.mark.parametrize("text", ["0-3", "1 0", "3 1", "0 1 1"])
def test_plans_that_keep_a_layer_of_each_kind(text: str) -> None:
    refuse_loss_of_a_kind(MODEL, "layers", Plan.parse(text))


@pytest.mark.parametrize(
    ("text", "message"), [("0 2 3", "no attention layer.*layers 1$"), ("1 2", "no recurrent layer.*layers 0, 3$")]
)
def test_plans_that_lose_a_kind_are_told_which_layers_to_keep(text: str, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        refuse_loss_of_a_kind(MODEL, "layers", Plan.parse(text))


def test_a_stack_of_one_kind_may_lose_any_layer() -> None:
    refuse_loss_of_a_kind(hybrid("full_attention", "sliding_attention"), "layers", Plan.parse("1"))
