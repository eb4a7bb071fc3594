"""The laws of a stack, and the equivalence of its executors on every kind of model."""

import copy
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
from layerwise.errors import MeasureError
from layerwise.plan import Plan
from layerwise.stack import load, verify
from layerwise.stack import stack as stack_module
from layerwise.stack.executors import in_place, passes
from layerwise.stack.executors.graph import GraphExecutor, build
from measure.language.test_loss import vision_stack
from stack.makers import DEPTH, MAKERS, NAMES, merged_stack, stack_of
from stack.random_plans import plans
from stack.test_stack import Mixer
from tier import by_tier, first_fast

PLAN = Plan.parse("1 (2|3 4):gain=1.5*2 0")
IN_PLACE = "plan in place = plan step by step"
follow = passes.follow


@pytest.fixture(autouse=True)
def _few_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module("layerwise.stack.verify"), "NEW_TOKENS", 3)


def test_every_law_holds_for_a_llama_also_of_halves_that_make_their_layers() -> None:
    assert [law.holds for law in verify(load(tiny_llama()), PLAN)] == [True] * 8
    laws = verify(load(tiny_llama()), Plan.parse("1.attn (2.mlp|3 4.attn):gain=1.5*2 0 2.attn"))
    assert [law.holds for law in laws] == [True] * 11, laws
    assert [law.name for law in laws[4:7]] == [f"{k}.attn and {k}.mlp in turn = {k}" for k in (1, 2, 4)]


def test_a_vision_model_has_no_decoding_to_verify() -> None:
    laws = verify(vision_stack(), Plan.parse("0 (1|2) 3"))
    assert [law.holds for law in laws] == [True] * 4 + [None] * 4


@pytest.mark.parametrize(
    ("place", "name", "wrong", "plan", "found"),
    [
        (stack_module, "only", lambda *_: nullcontext(), "0 1.attn 2", ["1.attn and 1.mlp in turn = 1", IN_PLACE]),
        (in_place, "slots_per_block", lambda blocks: 0, "0 1 1 3", ["cached decoding = recomputation (greedy)"]),
        (passes, "follow", lambda *call: follow(*call) * 1.01, str(PLAN), [IN_PLACE]),
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
    with pytest.raises(MeasureError, match="pass a batch"):
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
