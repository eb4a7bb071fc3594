"""Plans over several models agree in all executors; incompatible models are refused."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn
from transformers import (
    LlamaForCausalLM,
)

from conftest import tiny_llama
from layerwise.errors import ModelError, PlanError
from layerwise.plan import Plan
from layerwise.stack import Stack, load, verify
from stack.makers import IDS, gemma, llama, merged_stack, sources
from tier import first_fast


@pytest.mark.parametrize("kind", first_fast(["llama", "gemma"]))
def test_every_law_holds_for_a_plan_over_sources(kind: str) -> None:
    laws = verify(merged_stack(kind), Plan.parse("a:0 b:1*2 (c:2|b:3 a:0):sum 1.mlp c:3.attn b:3"))
    assert [law for law in laws if law.holds is not True] == []
    assert any("c:3.attn" in law.name for law in laws)


def test_no_weight_is_copied_and_no_source_is_touched() -> None:
    models = {name: load(gemma(seed).eval()) for seed, name in enumerate("ab")}
    stack = Stack.with_sources(models)
    config = copy.deepcopy(models["b"].model.config.to_dict())
    with torch.inference_mode():
        before = models["b"].model(IDS).logits
        with stack.under(Plan.parse("b:3 a:1 b:0")):
            inside = stack.model.get_submodule(stack.path)
            assert inside[0].mlp.up_proj.weight is models["b"].block(3).mlp.up_proj.weight
            assert inside[0].self_attn.config is stack.model.config, "in visit order"
            assert models["b"].model.config.to_dict() == config
            assert torch.equal(models["b"].model(IDS).logits, before), "a source runs as ever meanwhile"
            assert stack.model.config.num_hidden_layers == 3
        assert torch.equal(models["b"].model(IDS).logits, before)
    assert models["a"].sources == {}
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
        (lambda: tiny_llama(5), "the number of layers is 5, not 6"),
        (lambda: altered(hidden_size=64, head_dim=8), "hidden_size is 64, not 32"),
        (lambda: altered(intermediate_size=48), r"the shape of mlp.down_proj.weight in layer 0 is \(32, 48\), not"),
        (lambda: altered(attention_bias=True), r"k_proj.bias in layer 0 is \(16,\), not None"),
        (lambda: altered(rms_norm_eps=0.5), "rms_norm_eps in its configuration is 0.5, not 1e-06"),
        (lambda: gemma(0).eval(), "hidden_size is 16"),
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
