"""All executors agree: step by step, in place, single pass and graph, on plans over three models of each kind."""

import copy
from importlib.util import find_spec

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from layerwise.plan import Plan
from layerwise.stack.executors.graph import GraphExecutor, build
from stack.makers import DEPTH, MAKERS, NAMES, merged_stack, sources, stack_of
from stack.random_plans import plans
from tier import by_tier, first_fast

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
@pytest.mark.parametrize("text", PUT_TOGETHER)
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


@pytest.mark.parametrize("kind", MAKERS)
def test_the_models_of_a_kind_differ(kind: str) -> None:
    inputs = MAKERS[kind][1]
    with torch.inference_mode():
        one, other = (each.model(**inputs).logits for each in (sources(kind)["a"], sources(kind)["b"]))
    assert (one - other).abs().max() > 1e-2
