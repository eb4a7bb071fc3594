"""Checks of models and checkpoints: what fits together, what may be missing, and what a block may do."""

import copy
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from itertools import chain, combinations
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    BertModel,
    LlamaForCausalLM,
    PreTrainedModel,
)

from conftest import tiny_llama
from layerwise.errors import CheckpointError, ModelError, PlanError, UnsupportedModelError
from layerwise.plan import Plan
from layerwise.stack import Stack, load, verify
from layerwise.stack.checks.checkpoint_files import check_complete
from layerwise.stack.checks.compatibility import refuse_loss_of_a_kind
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


def test_sources_are_known_by_names_that_a_plan_can_write() -> None:
    merged = merged_stack("llama")
    with pytest.raises(PlanError, match=r"from 'd', .*[Kk]nown: a, b, c"):
        merged.logits(Plan.parse("a:0 d:1"), input_ids=IDS)
    with pytest.raises(PlanError, match="from 'd'"), merged.under(Plan.parse("d:0")):
        pass
    with pytest.raises(PlanError, match="the plan takes layers from 'a', but no model has that name"):
        sources("llama")["a"].check(Plan.parse("a:0"))
    with pytest.raises(PlanError, match="visits layer 7"):
        merged.check(Plan.parse("b:7"))

    stack = sources("llama")["a"]
    with pytest.raises(ModelError, match="sources must map names to stacks"):
        Stack.with_sources({})
    with pytest.raises(PlanError, match="a source name must be a letter followed by letters, digits, - or _,"):
        Stack.with_sources({"run 1": stack})


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


def test_parts_outside_the_layers_may_differ() -> None:
    config = copy.deepcopy(llama(0).config)
    config.vocab_size, config.attention_dropout = 50, 0.1
    other = load(LlamaForCausalLM(config).eval())
    merged = Stack.with_sources({"a": sources("llama")["a"], "b": other})
    assert merged.block(1, "b") is other.block(1)


BERT = BertConfig(vocab_size=20, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=8)


def report(**keys: list[str]) -> dict[str, list[str]]:
    return {"missing_keys": [], "unexpected_keys": [], "mismatched_keys": []} | keys


@pytest.fixture(scope="module")
def models() -> dict[str, PreTrainedModel]:
    return {kind.__name__: kind(BERT) for kind in (BertModel, BertForMaskedLM, BertForSequenceClassification)}


def test_a_new_head_is_drawn_and_nothing_else(models: dict[str, PreTrainedModel]) -> None:
    model = models["BertForSequenceClassification"]
    head = ["classifier.weight", "bert.pooler.dense.weight"]
    check_complete("here", model, report(missing_keys=head), new_head=True)
    with pytest.raises(CheckpointError, match=r"lacks 1 tensor .* bert\.embeddings\.LayerNorm\.weight;"):
        check_complete("here", model, report(missing_keys=[*head, "bert.embeddings.LayerNorm.weight"]), new_head=True)


WITH_AND_WITHOUT_VERSIONS = pytest.mark.parametrize("mode", [nullcontext, torch.inference_mode])


class Adding(nn.Module):
    def __init__(self, way: str) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.way = way

    def forward(self, x: Tensor, mask: Tensor, tables: tuple[Tensor, Tensor]) -> Tensor:
        update = torch.tanh(self.inner(x)) * mask + tables[1]
        match self.way:
            case "in place":
                x += update
            case "behind the back":
                x.data.add_(update)
            case "mask":
                mask.mul_(0.5)
            case "table":
                tables[1].add_(1.0)
            case "a view":
                x[:, 0].zero_()
        return x if self.way in ("in place", "behind the back") else x + update


class Adders(nn.Module):
    def __init__(self, way: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.ModuleList([Adding("plain"), Adding("plain"), Adding(way), Adding("plain")])

    def forward(self, x: Tensor) -> Tensor:
        x = x + 0
        mask, tables = torch.ones(4), (torch.zeros(4), torch.zeros(4))
        for block in self.blocks:
            x = block(x, mask, tables=tables)
        return x


@WITH_AND_WITHOUT_VERSIONS
@pytest.mark.parametrize(
    ("way", "reason"),
    [
        ("in place", r"block 2 changes the hidden state in place, .* write x = x \+ f\(x\)"),
        ("behind the back", "block 2 changes the hidden state"),
        ("a view", "block 2 changes the hidden state"),
        ("mask", "block 2 changes its argument at position 1"),
        ("table", "block 2 changes its argument tables"),
    ],
)
def test_a_block_that_changes_what_it_is_handed_is_refused(
    way: str, reason: str, mode: type[AbstractContextManager[None]]
) -> None:
    with mode(), pytest.raises(UnsupportedModelError, match=f"Adders: {reason}"):
        load(Adders(way)).capture(x=torch.randn(2, 3, 4))


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

    assert accepted(hybrid("full_attention", "sliding_attention")) == {(0,), (1,), (0, 1)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0 2 3", "keep at least one attention layer.*layers 1$"),
        ("1 2", "keep at least one recurrent layer.*layers 0, 3$"),
    ],
)
def test_plans_that_lose_a_kind_are_told_which_layers_to_keep(text: str, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        refuse_loss_of_a_kind(MODEL, "layers", Plan.parse(text))
