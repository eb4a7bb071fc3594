"""Compiled blocks: one graph per kind of block in any order, with the results of the uncompiled model."""

import copy
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounterWithBackend
from transformers import (
    BertConfig,
    BertForMaskedLM,
    CompileConfig,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    PreTrainedModel,
)

from compiling import COMPILES
from layerwise.errors import ModelError
from layerwise.models import ElcConfig, ElcForMaskedLM
from layerwise.plan import Plan
from layerwise.plan.samplers import Drop, SeededSampler, Shuffle
from layerwise.stack import Stack, load
from layerwise.stack.compilation import compiled_blocks
from train.tiny_models import VOCABULARY, WIDTH, tiny_llama, tiny_vit

pytestmark = COMPILES
DEPTH = 4
SHAPE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "num_hidden_layers": DEPTH,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}


def tiny_bert() -> PreTrainedModel:
    torch.manual_seed(0)
    return BertForMaskedLM(BertConfig(**SHAPE, max_position_embeddings=32))


def tiny_gemma() -> PreTrainedModel:
    torch.manual_seed(0)
    types = ["sliding_attention", "full_attention"] * (DEPTH // 2)
    sizes = {name: SHAPE[name] for name in ("vocab_size", "hidden_size", "num_hidden_layers", "intermediate_size")}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8}
    return Gemma3ForCausalLM(Gemma3TextConfig(**sizes, **heads, layer_types=types, sliding_window=4, pad_token_id=0))


def tiny_elc(variant: str = "elc") -> ElcForMaskedLM:
    torch.manual_seed(0)
    return ElcForMaskedLM(ElcConfig(variant=variant, **SHAPE, position_buckets=8, max_position_embeddings=64)).train()


def batch_for(model: PreTrainedModel) -> dict[str, Tensor]:
    torch.manual_seed(1)
    if model.main_input_name == "pixel_values":
        return {"pixel_values": torch.randn(3, 1, 8, 8), "labels": torch.tensor([1, 2, 3])}
    return words(3, 7)


def words(batch: int, length: int) -> dict[str, Tensor]:
    ids = torch.randint(0, VOCABULARY, (batch, length))
    real = torch.ones_like(ids)
    real[0, -2:] = 0
    return {"input_ids": ids, "attention_mask": real, "labels": torch.where(real.bool() & (ids % 3 == 0), ids, -100)}


def blocks_of(stack: Stack) -> list[nn.Module]:
    return [stack.block(layer) for layer in range(stack.depth)]


def learned(model: PreTrainedModel, batch: dict[str, Tensor]) -> Tensor:
    model.train().zero_grad()
    loss = model(**batch).loss
    loss.backward()
    gradients = [weight.grad.flatten() for weight in model.parameters() if weight.grad is not None]
    return torch.cat([loss.detach().reshape(1), *gradients])


@pytest.mark.parametrize(
    "make",
    [
        lambda: tiny_vit(DEPTH),
        lambda: tiny_llama(DEPTH),
        pytest.param(tiny_bert, marks=pytest.mark.slow),
        pytest.param(tiny_gemma, marks=pytest.mark.slow),
    ],
    ids=["vit", "llama", "bert", "windows"],
)
def test_one_graph_serves_every_order_and_every_subset(
    make: Callable[[], PreTrainedModel], graphs: CompileCounterWithBackend
) -> None:
    model = make()
    stack, batch, names = load(model), batch_for(model), set(model.state_dict())
    draws = SeededSampler(Drop(0.3, of=Shuffle()), DEPTH, 0)
    plans = [Plan.identity(DEPTH), *(draws.at(step) for step in range(6))]
    assert len({plan.order() for plan in plans}) > 4
    for plan in plans:
        with stack.under(plan, single_pass=True):
            expected = learned(model, batch)
            with compiled_blocks(blocks_of(stack)):
                assert torch.allclose(learned(model, batch), expected, atol=1e-6)
                assert set(model.state_dict()) == names
    assert graphs.frame_count == 1
    assert not any("forward" in vars(block) for block in blocks_of(stack))


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["elc", "ltg"])
def test_one_graph_serves_all_layers_of_elc_and_both_lengths(variant: str, graphs: CompileCounterWithBackend) -> None:
    model = tiny_elc(variant)
    stack = load(model)
    with compiled_blocks(blocks_of(stack), dynamic=True):
        for length, plan in ((WIDTH, "0-3"), (48, "0-3"), (WIDTH, "2 0 3"), (40, "3 1")):
            batch = words(3, length)
            unmasked = {name: value for name, value in batch.items() if name != "attention_mask"}
            with stack.under(Plan.parse(plan), single_pass=True):
                for each in (batch, unmasked):
                    output = model(**each)
                    output.loss.backward()
                    # The head is not compiled, and projects what is labeled alone.
                    assert output.logits.shape == ((batch["labels"] >= 0).sum(), VOCABULARY)
    assert graphs.frame_count == 1


def test_a_visit_with_a_state_of_its_own_runs_uncompiled(graphs: CompileCounterWithBackend) -> None:
    model = tiny_llama(DEPTH)
    stack, batch = load(model), batch_for(model)
    plan = Plan.parse("1 0 0 (2|3.mlp)")
    with stack.under(plan, single_pass=True):
        expected = learned(model, batch)
    with compiled_blocks(blocks_of(stack)), stack.under(plan, single_pass=True):
        assert torch.allclose(learned(model, batch), expected, atol=1e-6)
    assert graphs.frame_count == 1  # layer 1


def test_checkpointed_blocks_are_compiled(graphs: CompileCounterWithBackend) -> None:
    model = tiny_vit(2)
    stack, batch = load(model), batch_for(model)
    expected = learned(model, batch)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    with compiled_blocks(blocks_of(stack)):
        assert torch.allclose(learned(model, batch), expected, atol=1e-6)
    assert graphs.frame_count == 1


def test_copies_compile_their_own_blocks_and_replaced_forwards_are_refused(
    graphs: CompileCounterWithBackend,
) -> None:
    model = tiny_vit(1)
    with compiled_blocks([model.vit.layers[0]]):
        other = copy.deepcopy(model)
        assert other.vit.layers[0].forward.__self__ is other.vit.layers[0]

    model = tiny_vit(1)
    block = model.vit.layers[0]
    block.forward = lambda *args, **kwargs: args[0]
    with pytest.raises(ModelError, match="was replaced"), compiled_blocks([block]):
        pass


def test_a_compiled_model_follows_every_plan() -> None:
    model = tiny_llama(2).eval()
    stack, batch = load(model), {"input_ids": batch_for(model)["input_ids"], "use_cache": False}
    torch._dynamo.reset()
    compiled: Any = torch.compile(model, fullgraph=True, backend="eager")
    with torch.no_grad():
        for plan in (None, "1 (0|1.mlp) 0", None):
            with nullcontext() if plan is None else stack.under(plan):
                expected = model(**batch).logits
                assert torch.equal(compiled(**batch).logits, expected)


@pytest.mark.slow
@pytest.mark.parametrize("plan", ["0 1", "1 0*2"])
def test_generation_with_a_static_cache_is_compiled_under_a_plan(plan: str) -> None:
    model: Any = tiny_llama(2).eval()
    asked = {"max_new_tokens": 4, "min_new_tokens": 4, "do_sample": False, "pad_token_id": 0}
    options = CompileConfig(fullgraph=True, backend="eager", mode=None)
    options._compile_all_devices = True
    torch._dynamo.reset()
    with load(model).under(plan):
        text = model.generate(batch_for(model)["input_ids"], **asked)
        static = {"cache_implementation": "static", "compile_config": options}
        assert torch.equal(model.generate(batch_for(model)["input_ids"], **static, **asked), text)
