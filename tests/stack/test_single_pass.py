"""A single pass in place: blocks are entered as themselves; what they compute is a matter of `test_equivalence`."""

import random

import pytest
import torch
from torch import Tensor, nn

from layerwise.errors import ModelError
from layerwise.plan import Plan
from layerwise.plan.samplers import Drop, Shuffle
from layerwise.stack import Stack, load
from layerwise.stack.blocks import block_list
from stack.makers import DEPTH, MAKERS, merged_stack
from stack.test_blocks import Residual
from tier import first_fast

KINDS = pytest.mark.parametrize("kind", first_fast(["llama", "vit", "bert"]))


def made(kind: str) -> tuple[Stack, dict[str, Tensor]]:
    make, inputs = MAKERS[kind]
    return load(make(0).eval()), inputs


def inside(stack: Stack, plan: Plan, inputs: dict[str, Tensor], *, single_pass: bool) -> Tensor:
    with torch.inference_mode(), stack.under(plan, single_pass=single_pass):
        return stack.model(**inputs).logits


@KINDS
@pytest.mark.parametrize("plan", ["4 2 0 5 1 3", "0 (1|2)*2 [3 4]*2 5*2 (1 2|3):sum 0"], ids=["order", "groups"])
def test_gradients_are_those_of_single_steps(kind: str, plan: str) -> None:
    stack, inputs = made(kind)
    stack.logits(plan, **inputs).square().sum().backward()
    expected = {name: weight.grad.clone() for name, weight in stack.model.named_parameters() if weight.grad is not None}
    stack.model.zero_grad()
    with stack.under(plan, single_pass=True):
        stack.model(**inputs).logits.square().sum().backward()
    found = {name: weight.grad for name, weight in stack.model.named_parameters() if weight.grad is not None}
    assert found.keys() == expected.keys()
    for name, gradient in found.items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-4, atol=1e-4)


@KINDS
def test_the_blocks_themselves_are_entered(kind: str) -> None:
    """Sharding and hooks belong to the original modules, so no copy may replace them."""
    stack, inputs = made(kind)
    blocks = list(block_list(stack.model, stack.path))
    seen: list[int] = []
    for layer, block in enumerate(blocks):
        block.register_forward_hook(lambda module, args, output, layer=layer: seen.append(layer))
    with stack.under(Plan.parse("3 1 5 0*2 4"), single_pass=True):
        listed = list(block_list(stack.model, stack.path))
        own = [entry is blocks[layer] for entry, layer in zip(listed, (3, 1, 5, 0, 0, 4), strict=True)]
        assert own == [True, True, True, False, False, True]
        with torch.inference_mode():
            stack.model(**inputs)
    assert seen == [3, 1, 5, 0, 0, 4]


@KINDS
@pytest.mark.parametrize("single_pass", [True, False])
def test_afterwards_the_model_is_as_it_was(kind: str, single_pass: bool) -> None:
    stack, inputs = made(kind)
    before = inside(stack, Plan.identity(DEPTH), inputs, single_pass=single_pass)
    described = state_of(stack.model)
    for text in ("3 1 5 0 4 2", "0 1*2", "(0|1) 2"):
        inside(stack, Plan.parse(text), inputs, single_pass=single_pass)
        assert state_of(stack.model) == described
    with pytest.raises(RuntimeError, match="cut short"), stack.under(Plan.parse("2 1"), single_pass=single_pass):
        raise RuntimeError("cut short")
    assert state_of(stack.model) == described
    assert torch.equal(inside(stack, Plan.identity(DEPTH), inputs, single_pass=single_pass), before)


def state_of(model: nn.Module) -> list[object]:
    modules = dict(model.named_modules())
    hooks = {
        name: {kind: list(found) for kind, found in vars(module).items() if kind.endswith("_hooks")}
        for name, module in modules.items()
    }
    indices = {name: vars(module).get("layer_idx") for name, module in modules.items()}
    weights = {name: id(weight) for name, weight in model.named_parameters()}
    own_forwards = [name for name, module in modules.items() if "forward" in vars(module)]
    return [
        {name: id(module) for name, module in modules.items()},
        hooks,
        indices,
        weights,
        own_forwards,
        model.config.to_dict(),
        model.training,
    ]


class Stubborn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Residual() for _ in range(3))
        self.own = tuple(self.blocks)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.own:
            x = block(x)
        return x


@pytest.mark.parametrize("single_pass", [True, False])
@pytest.mark.parametrize("text", ["2 0 1", "0 2 1", "1 0", "0 2", "0 (1|2)"])
def test_a_model_that_does_not_walk_its_list_is_found_out(text: str, single_pass: bool) -> None:
    model = Stubborn()
    stack = Stack(model, "blocks")
    with pytest.raises(ModelError, match=r"ran \d visits of a plan of"), torch.inference_mode():  # noqa: SIM117
        with stack.under(Plan.parse(text), single_pass=single_pass):
            model(torch.zeros(2, 4))
    assert not any(block._forward_hooks for block in model.blocks)


@KINDS
def test_silenced_layers_give_the_output_and_the_gradients_of_skipped_ones_and_zeros_for_their_own(kind: str) -> None:
    stack, inputs = made(kind)
    skipped, silent = (Drop(0.5, of=Shuffle(), preserve=keep).draw(DEPTH, random.Random(3)) for keep in (False, True))
    left_out = set(range(DEPTH)) - set(skipped.order())
    assert 0 < len(left_out) < DEPTH
    gradients = []
    outputs = []
    for plan in (skipped, silent):
        stack.model.zero_grad(set_to_none=True)
        with stack.under(plan, single_pass=True):
            outputs.append(stack.model(**inputs).logits)
        outputs[-1].square().mean().backward()
        gradients.append({name: weight.grad for name, weight in stack.model.named_parameters()})
    torch.testing.assert_close(*outputs, rtol=1e-5, atol=1e-5)
    for layer in range(DEPTH):
        names = [f"{stack.path}.{layer}.{name}" for name, _ in stack.block(layer).named_parameters()]
        for name in names:
            if layer in left_out:
                assert gradients[0][name] is None
                assert not gradients[1][name].any()
            else:
                torch.testing.assert_close(gradients[1][name], gradients[0][name], rtol=1e-4, atol=1e-5)
                assert gradients[0][name].any() or name.endswith("key.bias")


@pytest.mark.parametrize("plan", ["a:0 0", "0 0 (0|a:1) 1"])
def test_a_layer_counts_once_that_is_also_a_source(plan: str) -> None:
    stack, inputs = merged_stack("llama"), MAKERS["llama"][1]
    with torch.inference_mode():
        expected = stack.logits(plan, **inputs)
    torch.testing.assert_close(inside(stack, Plan.parse(plan), inputs, single_pass=True), expected)
