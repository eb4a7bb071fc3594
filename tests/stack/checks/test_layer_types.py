"""A hybrid keeps one layer of each type that its cache needs; layers without a cache can all be skipped."""

from contextlib import suppress
from itertools import chain, combinations
from types import SimpleNamespace

import pytest
from torch import nn

from layerwise.errors import PlanError
from layerwise.plan import Plan
from layerwise.stack.checks.compatibility import refuse_loss_of_a_kind


def hybrid(*types: str) -> nn.Module:
    model = nn.Module()
    model.config = SimpleNamespace(layer_types=list(types))
    model.layers = nn.ModuleList([nn.Identity() for _ in types])
    return model


MODEL = hybrid("linear_attention", "full_attention", "mlp", "linear_attention")


def accepted(model: nn.Module) -> set[tuple[int, ...]]:
    depth = len(model.get_submodule("layers"))
    found = set()
    for layers in chain.from_iterable(combinations(range(depth), count) for count in range(1, depth + 1)):
        with suppress(PlanError):
            refuse_loss_of_a_kind(model, "layers", Plan.of(layers))
            found.add(layers)
    return found


def test_plans_that_keep_a_layer_of_each_kind() -> None:
    assert accepted(MODEL) == {(0, 1), (1, 3), (0, 1, 2), (0, 1, 3), (1, 2, 3), (0, 1, 2, 3)}


@pytest.mark.parametrize(
    ("text", "message"), [("0 2 3", "no attention layer.*layers 1$"), ("1 2", "no recurrent layer.*layers 0, 3$")]
)
def test_plans_that_lose_a_kind_are_told_which_layers_to_keep(text: str, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        refuse_loss_of_a_kind(MODEL, "layers", Plan.parse(text))


def test_a_stack_of_one_kind_may_lose_any_layer() -> None:
    assert accepted(hybrid("full_attention", "sliding_attention")) == {(0,), (1,), (0, 1)}
