"""The laws of plans on models: stepwise, in place, in a single pass, and as one graph of several plans."""

import copy
import random
import types
from contextlib import nullcontext
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from conftest import tiny_llama
from layerwise.errors import MeasureError, ModelError
from layerwise.plan import Plan
from layerwise.plan.samplers import Drop, Shuffle
from layerwise.stack import Stack, load, verify
from layerwise.stack import stack as stack_module
from layerwise.stack.blocks import block_list
from layerwise.stack.executors import in_place
from layerwise.stack.executors.graph import GraphExecutor, build
from stack.makers import DEPTH, MAKERS, NAMES, merged_stack, stack_of
from stack.random_plans import plans
from stack.test_blocks import Residual
from stack.test_stack import Mixer
from tier import by_tier, first_fast

PLAN = Plan.parse("1 (2|3 4):gain=1.5*2 0")
IN_PLACE = "plan in place = plan step by step"
follow = in_place.follow


@pytest.fixture(autouse=True)
def _few_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module("layerwise.stack.verify"), "NEW_TOKENS", 3)


def test_every_law_holds_for_a_llama_also_of_halves_that_make_their_layers() -> None:
    assert [law.holds for law in verify(load(tiny_llama()), PLAN)] == [True] * 8
    laws = verify(load(tiny_llama()), Plan.parse("1.attn (2.mlp|3 4.attn):gain=1.5*2 0 2.attn"))
    assert [law.holds for law in laws] == [True] * 11, laws
    assert [law.name for law in laws[4:7]] == [f"{k}.attn and {k}.mlp in sequence = {k}" for k in (1, 2, 4)]


@pytest.mark.parametrize(
    ("place", "name", "wrong", "plan", "found"),
    [
        (stack_module, "only", lambda *_: nullcontext(), "0 1.attn 2", ["1.attn and 1.mlp in sequence = 1", IN_PLACE]),
        (in_place, "slots_per_block", lambda blocks: 0, "0 1 1 3", ["cached decoding = recomputation (greedy)"]),
        (in_place, "follow", lambda *call: follow(*call) * 1.01, str(PLAN), [IN_PLACE]),
    ],
    ids=["branches that are not silenced", "visits that share their slot", "a group that forgets its base"],
)
def test_what_breaks_a_law_is_found(
    place: Any, name: str, wrong: Any, plan: str, found: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stack = load(tiny_llama())
    monkeypatch.setattr(place, name, wrong)
    assert set(found) <= {law.name for law in verify(stack, Plan.parse(plan)) if law.holds is False}


def test_a_copied_weight_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    stack = load(tiny_llama())
    clone = in_place.clone

    def copying(module: torch.nn.Module, *args: object) -> torch.nn.Module:
        return clone(copy.deepcopy(module), *args)

    monkeypatch.setattr(in_place, "clone", copying)
    broken = [law.name for law in verify(stack, PLAN) if law.holds is False]
    assert broken == ["no weight is copied"]


def test_a_model_with_inputs_of_its_own_wants_a_batch() -> None:
    stack = load(Mixer(), layers="encoder.blocks")
    with pytest.raises(MeasureError, match=r"stack must be a Stack, got str. Open the model first: verify\(layerwise"):
        verify("demo", "0-3")  # type: ignore[arg-type]
    with pytest.raises(MeasureError, match="cannot build example inputs"):
        verify(stack, Plan.parse("0-3"))
    laws = verify(stack, Plan.parse("3 (0|1)"), {"x": torch.randn(2, 3)})
    assert [law.holds for law in laws] == [True] * 4 + [None] * 4


def test_methods_kept_as_attributes_follow_the_twin() -> None:
    model = tiny_llama()
    block = model.model.layers[0]
    block.own_slot = types.MethodType(lambda self: self.self_attn.layer_idx, block)
    stack = load(model)
    with stack.under(Plan.parse("5 0")):
        assert model.model.layers[1].own_slot() == 1
    assert block.own_slot() == 0


def test_the_share_of_the_laws_that_are_tested_rises_to_one() -> None:
    shares: list[float] = []
    laws = verify(load(tiny_llama()), "0-1 3.attn 4-5", progress=shares.append)
    assert shares == sorted(shares)
    assert (len(shares), shares[-1]) == (6, 1.0)
    assert all(law.holds is not False for law in laws)


ALL_CHECKS = list(HealthCheck)


def by_hand(kind: str, plan: Plan) -> Tensor:
    make, inputs = MAKERS[kind]
    shell, path = make(0).eval(), stack_of(kind).path
    layers = [
        copy.deepcopy(make(NAMES.index(step.source or "a")).eval().get_submodule(path)[step.layer])
        for step in plan.steps()
    ]
    for slot, block in enumerate(layers):
        for module in block.modules():
            if hasattr(module, "layer_idx"):
                module.layer_idx = slot
    shell.config.num_hidden_layers = len(layers)
    owner = shell.get_submodule(path.rpartition(".")[0])
    setattr(owner, path.rpartition(".")[2], nn.ModuleList(layers))
    with torch.inference_mode():
        return shell(**inputs).logits


PUT_TOGETHER = ("a:0 b:1 c:2 a:3", "c:3 b:0 a:1 c:2", "0 b:1-3", "5-0", "0 3*3 5", "[0-2]*2 5", "2")


@pytest.mark.parametrize("kind", first_fast(["llama", "vit", "bert"], slow=1))
@pytest.mark.parametrize("text", first_fast(PUT_TOGETHER, 3))
def test_a_plan_is_the_model_put_together_from_its_layers(kind: str, text: str) -> None:
    plan, inputs = Plan.parse(text), MAKERS[kind][1]
    expected, stack = by_hand(kind, plan), merged_stack(kind)
    with torch.inference_mode():
        assert torch.equal(stack.logits(plan, **inputs), expected)
        for single_pass in (False, True):
            with stack.under(plan, single_pass=single_pass):
                assert torch.equal(stack.model(**inputs).logits, expected)
        other = Plan.of(plan.order()) if plan.sources() else Plan.identity(DEPTH)
        assert (stack.logits(other, **inputs) - expected).abs().max() > 1e-2, "another plan would be seen"


@pytest.mark.parametrize("kind", first_fast(MAKERS))
@given(data=st.data())
@settings(max_examples=by_tier(fast=4, nightly=60), deadline=None, suppress_health_check=ALL_CHECKS)
def test_in_place_equals_step_by_step_equals_the_graph(kind: str, data: st.DataObject) -> None:
    types = () if kind == "gemma" or find_spec("gguf") is None else ("Q4_0", "Q5_1-noise3")  # its rows have 16 numbers
    plan = data.draw(plans(DEPTH, sources=(None, *NAMES, *types)))
    assume(kind != "bert" or not plan.has_sublayers())
    stack, inputs = merged_stack(kind), MAKERS[kind][1]
    with torch.inference_mode():
        stepwise = stack.logits(plan, **inputs)
        for single_pass in (False, True):
            with stack.under(plan, single_pass=single_pass):
                inside = stack.model(**inputs).logits
            torch.testing.assert_close(inside, stepwise, rtol=1e-4, atol=1e-4, equal_nan=True)
        captured = stack.capture(**inputs)
        other = Plan.of(plan.order())
        graph = build([other, plan])

        def apply(layer: int, state: Tensor, part: object, source: str | None) -> Tensor:
            return stack.apply(layer, state, captured, part, source)  # type: ignore[arg-type]

        walked = {node: state.clone() for node, state in GraphExecutor(graph, apply, captured.state).states()}
        assert torch.equal(walked[graph.ends[plan]], stack.run(plan, captured))
        assert torch.equal(walked[graph.ends[other]], stack.run(other, captured))


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
    with pytest.raises(ModelError, match=r"ran \d of the \d steps of the plan"), torch.inference_mode():  # noqa: SIM117
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
