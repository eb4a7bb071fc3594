"""Layers of several models in one: the same function step by step, in place and in a sweep; misfits are refused."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from torch import Tensor, nn
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaForCausalLM,
    ViTConfig,
    ViTForImageClassification,
)

from conftest import tiny_llama
from layerwise.errors import ModelError, PlanError
from layerwise.plan import Plan
from layerwise.stack import Stack, load, verify
from layerwise.stack.executors.graph import GraphExecutor, build
from stack.random_plans import plans
from tier import by_tier, first_fast

DEPTH = 4
NAMES = ("a", "b", "c")
IDS = torch.randint(3, 97, (2, 9), generator=torch.Generator().manual_seed(2))


def vit(seed: int) -> ViTForImageClassification:
    torch.manual_seed(seed)
    config = ViTConfig(
        image_size=8, patch_size=4, hidden_size=16, intermediate_size=32, num_hidden_layers=DEPTH,
        num_attention_heads=2, num_labels=3, initializer_range=0.2,
    )  # fmt: skip
    return ViTForImageClassification(config).eval()


def bert(seed: int) -> BertForSequenceClassification:
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=97, hidden_size=16, intermediate_size=32, num_hidden_layers=DEPTH, num_attention_heads=2,
        num_labels=3, initializer_range=0.2,
    )  # fmt: skip
    return BertForSequenceClassification(config).eval()


def gemma(seed: int) -> Gemma3ForCausalLM:
    """Sliding and full layers in turn: masks and rotary embeddings depend on the layer."""
    torch.manual_seed(seed)
    config = Gemma3TextConfig(
        vocab_size=97, hidden_size=16, intermediate_size=32, num_hidden_layers=DEPTH, num_attention_heads=2,
        num_key_value_heads=1, head_dim=8, sliding_window=4, initializer_range=0.2,
        layer_types=["sliding_attention", "full_attention"] * 2, bos_token_id=1, eos_token_id=2, pad_token_id=0,
    )  # fmt: skip
    return Gemma3ForCausalLM(config).eval()


def llama(seed: int) -> LlamaForCausalLM:
    return tiny_llama(DEPTH, seed=seed)


PIXELS = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(3))
MAKERS: dict[str, tuple[Callable[[int], nn.Module], dict[str, Tensor]]] = {
    "vit": (vit, {"pixel_values": PIXELS}),
    "bert": (bert, {"input_ids": IDS}),
    "llama": (llama, {"input_ids": IDS}),
    "gemma3": (gemma, {"input_ids": IDS}),
}


@cache
def sources(kind: str) -> dict[str, Stack]:
    """Three models of a kind, by name."""
    return {name: load(MAKERS[kind][0](seed)) for seed, name in enumerate(NAMES)}


@cache
def merged_stack(kind: str) -> Stack:
    """A stack whose layers are those of all three."""
    return Stack.with_sources(sources(kind))


def by_hand(kind: str, plan: Plan) -> Tensor:
    """A plan of plain visits, as a model that was really put together from copied layers."""
    make, inputs = MAKERS[kind]
    shell, path = make(0), sources(kind)["a"].path
    layers = [
        copy.deepcopy(make(NAMES.index(step.source or "a")).get_submodule(path)[step.layer]) for step in plan.steps()
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


@pytest.mark.parametrize("kind", first_fast(["llama", "vit", "bert"], slow=1))
@pytest.mark.parametrize("text", ["a:0 b:1 c:2 a:3", "c:3 b:0 a:1 c:2", "0 b:1-3", "b:2 c:2"])
def test_a_plan_over_sources_is_the_model_put_together_from_their_layers(kind: str, text: str) -> None:
    plan, inputs = Plan.parse(text), MAKERS[kind][1]
    expected, stack = by_hand(kind, plan), merged_stack(kind)
    with torch.inference_mode():
        assert torch.equal(stack.logits(plan, **inputs), expected)
        for single_pass in (False, True):
            with stack.under(plan, single_pass=single_pass):
                assert torch.equal(stack.model(**inputs).logits, expected)
        alone = stack.logits(Plan.of(plan.order()), **inputs)
    assert (alone - expected).abs().max() > 1e-2, "the sources differ, so leaving their names out is seen"


@pytest.mark.parametrize("kind", first_fast(MAKERS))
@given(plan=plans(DEPTH, sources=(None, *NAMES)))
@settings(max_examples=by_tier(fast=3, full=6, nightly=30), suppress_health_check=list(HealthCheck))
def test_in_place_equals_step_by_step_equals_the_graph(kind: str, plan: Plan) -> None:
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


@pytest.mark.parametrize("kind", first_fast(["llama", "gemma3"]))
def test_every_law_holds_for_a_plan_over_sources(kind: str) -> None:
    laws = verify(merged_stack(kind), Plan.parse("a:0 b:1*2 (c:2|b:3 a:0):sum 1.mlp c:3.attn b:3"))
    assert [law for law in laws if law.holds is not True] == []
    assert any("c:3.attn" in law.name for law in laws)


def test_no_weight_is_copied_and_no_source_is_touched() -> None:
    sources = {name: load(gemma(seed)) for seed, name in enumerate("ab")}
    stack = Stack.with_sources(sources)
    config = copy.deepcopy(sources["b"].model.config.to_dict())
    with torch.inference_mode():
        before = sources["b"].model(IDS).logits
        with stack.under(Plan.parse("b:3 a:1 b:0")):
            inside = stack.model.get_submodule(stack.path)
            assert inside[0].mlp.up_proj.weight is sources["b"].block(3).mlp.up_proj.weight
            assert inside[0].self_attn.config is stack.model.config, "in visit order"
            assert sources["b"].model.config.to_dict() == config
            assert torch.equal(sources["b"].model(IDS).logits, before), "a source runs as ever meanwhile"
            assert stack.model.config.num_hidden_layers == 3
        assert torch.equal(sources["b"].model(IDS).logits, before)
    assert sources["a"].sources == {}
    assert "a: Gemma3ForCausalLM, b: Gemma3ForCausalLM" in repr(stack)


def test_the_stacks_over_one_model_know_of_each_others_plans() -> None:
    shell, other = load(llama(0)), load(llama(1))
    merged = Stack.with_sources({"a": shell, "b": other})
    with merged.under(Plan.parse("b:0 a:1")), pytest.raises(ModelError, match=r"is running b:0 a:1 in place"):
        shell.capture(input_ids=IDS)
    with shell.under(Plan.parse("0")), pytest.raises(ModelError, match="in place"):
        Stack.with_sources({"a": shell, "b": other})
    with other.under(Plan.parse("0")), pytest.raises(ModelError, match="in place"):
        merged.capture(input_ids=IDS)
    merged.capture(input_ids=IDS)


def test_a_source_that_is_not_there_is_refused() -> None:
    merged = merged_stack("llama")
    with pytest.raises(PlanError, match=r"from 'd', .*Known: a, b, c"):
        merged.logits(Plan.parse("a:0 d:1"), input_ids=IDS)
    with pytest.raises(PlanError, match="from 'd'"), merged.under(Plan.parse("d:0")):
        pass
    with pytest.raises(PlanError, match="there is one model, so leave the names out"):
        sources("llama")["a"].check(Plan.parse("a:0"))
    with pytest.raises(PlanError, match="visits layer 7"):
        merged.check(Plan.parse("b:7"))


def altered(**changes: object) -> LlamaForCausalLM:
    config = copy.deepcopy(llama(0).config)
    for name, value in changes.items():
        setattr(config, name, value)
    return LlamaForCausalLM(config).eval()


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (lambda: tiny_llama(5), "the number of layers is 5, not 4"),
        (lambda: altered(hidden_size=64, head_dim=8), "hidden_size is 64, not 32"),
        (lambda: altered(intermediate_size=48), r"the shape of mlp.down_proj.weight in layer 0 is \(32, 48\), not"),
        (lambda: altered(attention_bias=True), r"k_proj.bias in layer 0 is \(16,\), not None"),
        (lambda: altered(rms_norm_eps=0.5), "rms_norm_eps in its configuration is 0.5, not 1e-06"),
        (lambda: gemma(0), "hidden_size is 16"),
        (lambda: llama(0).double(), "the dtype is torch.float64"),
    ],
)
def test_a_model_of_other_build_is_refused_with_the_first_difference(
    other: Callable[[], nn.Module], reason: str
) -> None:
    with pytest.raises(ModelError, match=rf"layers of b \(.*cannot run in a .*{reason}"):
        Stack.with_sources({"a": sources("llama")["a"], "b": load(other())})


def test_what_belongs_to_the_shell_may_differ() -> None:
    config = copy.deepcopy(llama(0).config)
    config.vocab_size, config.attention_dropout = 50, 0.1
    other = load(LlamaForCausalLM(config).eval())
    merged = Stack.with_sources({"a": sources("llama")["a"], "b": other})
    assert merged.block(1, "b") is other.block(1)


def test_names_are_those_a_plan_can_write() -> None:
    stack = sources("llama")["a"]
    with pytest.raises(ModelError, match="by name"):
        Stack.with_sources({})
    with pytest.raises(PlanError, match="a source is named by a letter"):
        Stack.with_sources({"run 1": stack})
