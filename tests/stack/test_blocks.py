"""The blocks of a model and the branches of a block."""

import threading

import pytest
import torch
from torch import nn
from transformers import (
    BertConfig,
    BertForMaskedLM,
    FalconConfig,
    FalconForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma3Config,
    Gemma3ForConditionalGeneration,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    MambaConfig,
    MambaForCausalLM,
)

from conftest import tiny_llama
from layerwise.errors import UnsupportedModelError
from layerwise.stack import Stack, load
from layerwise.stack.blocks import find_blocks
from layerwise.stack.branches import edited, find_branches
from stack.makers import bart
from tier import first_fast


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.tanh(self.inner(x))


class Tower(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.ModuleList([nn.Linear(4, 2), nn.Linear(4, 2)])
        self.encoder = nn.Module()
        self.encoder.blocks = nn.ModuleList([Residual() for _ in range(4)])


def test_an_unmarked_module_is_found_by_its_largest_list_and_the_user_may_name_another() -> None:
    assert find_blocks(Tower()) == "encoder.blocks"
    assert find_blocks(Tower(), "heads") == "heads"


@pytest.mark.parametrize(
    ("model", "path", "reason"),
    [
        (Tower(), "encoder.block", r"encoder\.block'.*did you mean encoder\.blocks"),
        (Tower(), "encoder", r"not an nn\.ModuleList"),
        (nn.Linear(2, 2), None, r"no nn\.ModuleList or nn\.Sequential of repeated blocks"),
    ],
)
def test_a_path_without_blocks_is_refused(model: nn.Module, path: str | None, reason: str) -> None:
    with pytest.raises(UnsupportedModelError, match=reason):
        find_blocks(model, path)


def test_two_stacks_ask_for_a_choice() -> None:
    with pytest.raises(
        UnsupportedModelError, match=r"2 block lists: .*encoder\.layers \(3 blocks\).*choose one with layers="
    ):
        find_blocks(bart())


def test_the_decoder_of_a_model_of_images_and_text_is_the_stack() -> None:
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = Gemma3Config(
        text_config={**sizes, "vocab_size": 50, "head_dim": 8, "num_key_value_heads": 1},
        vision_config={**sizes, "image_size": 8, "patch_size": 4},
        mm_tokens_per_image=4,
    )
    assert find_blocks(Gemma3ForConditionalGeneration(config)) == "model.language_model.layers"


SMALL = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "initializer_range": 0.2,
}


def branches_of(stack: Stack, ids: torch.Tensor) -> tuple[dict[str, str], ...]:
    with torch.inference_mode():
        return tuple(dict(pair) for pair in find_branches(stack, stack.capture(input_ids=ids)).paths)


def test_behind_a_norm_of_its_own_the_branch_ends_at_that_norm(ids: torch.Tensor) -> None:
    model = Gemma2ForCausalLM(Gemma2Config(**SMALL, num_key_value_heads=2, head_dim=8)).eval()
    paths = branches_of(load(model), ids)
    assert set(map(tuple, (pair.values() for pair in paths))) == {
        ("post_attention_layernorm", "post_feedforward_layernorm")
    }


def test_parallel_branches_are_two(ids: torch.Tensor) -> None:
    model = GPTNeoXForCausalLM(GPTNeoXConfig(**SMALL, use_parallel_residual=True)).eval()
    assert branches_of(load(model), ids) == ({"attn": "post_attention_dropout", "mlp": "post_mlp_dropout"},) * 4


@pytest.mark.parametrize(
    "model",
    [
        BertForMaskedLM(BertConfig(**SMALL)).eval(),
        MambaForCausalLM(MambaConfig(vocab_size=97, hidden_size=32, num_hidden_layers=4, state_size=4)).eval(),
    ],
    ids=["normalizes after adding", "one branch"],
)
def test_unsplittable_layers_are_refused_by_number(model: torch.nn.Module, ids: torch.Tensor) -> None:
    with pytest.raises(UnsupportedModelError, match=r"cannot be split into attn and mlp: in layer 0"):
        branches_of(load(model), ids)


@pytest.mark.parametrize("idle", first_fast([(0, 1, 2, 3), (0,), (3,)]))
def test_an_idle_layer_takes_the_pair_of_the_others(ids: torch.Tensor, idle: tuple[int, ...]) -> None:
    """Layers whose branches add nothing prove nothing at any position."""
    model = tiny_llama(4)
    with torch.no_grad():
        for layer in idle:
            model.model.layers[layer].self_attn.o_proj.weight.zero_()
            model.model.layers[layer].mlp.down_proj.weight.zero_()
    if len(idle) == 4:
        with pytest.raises(UnsupportedModelError, match="cannot be split"):
            branches_of(load(model), ids)
    else:
        assert branches_of(load(model), ids) == ({"attn": "self_attn", "mlp": "mlp"},) * 4


def test_edited_outputs_are_not_overwritten(ids: torch.Tensor) -> None:
    torch.manual_seed(8)
    size = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2, "initializer_range": 0.2}
    model = FalconForCausalLM(FalconConfig(vocab_size=97, bos_token_id=1, eos_token_id=2, **size)).eval()
    stack, block = load(model), model.transformer.h[0]
    with torch.inference_mode():
        captured = stack.capture(input_ids=ids)
        expected = block.mlp(block.input_layernorm(captured.state))
        kept: list[torch.Tensor] = []
        with edited(block, "mlp", lambda output: kept.append(output) or output):  # type: ignore[func-returns-value]
            noted = stack.apply(0, captured.state, captured)
        assert torch.equal(kept[0], expected)
        assert torch.equal(noted, stack.apply(0, captured.state, captured))
        given = torch.ones(32)
        with edited(block, "mlp", lambda output: given.expand_as(output)):
            once, twice = (stack.apply(0, captured.state, captured) for _ in range(2))
        assert torch.equal(given, torch.ones(32))
        assert torch.equal(once, twice)


def test_an_edit_is_for_the_thread_that_asked_for_it() -> None:
    stack = load(tiny_llama())
    captured = stack.capture(input_ids=torch.arange(3, 9)[None])
    with torch.inference_mode():
        whole = stack.apply(1, captured.state, captured)
    elsewhere: list[torch.Tensor] = []

    def work() -> None:
        with torch.inference_mode():
            elsewhere.append(stack.apply(1, captured.state, captured))

    with edited(stack.block(1), "mlp", torch.zeros_like), torch.inference_mode():
        here = stack.apply(1, captured.state, captured)
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    torch.testing.assert_close(elsewhere[0], whole)
    assert (here - whole).abs().max() > 0.1
