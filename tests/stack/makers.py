"""Small models in which every layer matters, and cached Stacks over them."""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import torch
from torch import Tensor
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    BertConfig,
    BertForMaskedLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedModel,
    ViTConfig,
    ViTForImageClassification,
)

from conftest import tiny_llama
from layerwise.stack import Stack, load

DEPTH = 6
NAMES = ("a", "b", "c")
SMALL: Mapping[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": DEPTH,
    "num_attention_heads": 4,
    "initializer_range": 0.2,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
IDS = torch.randint(3, 97, (2, 9), generator=torch.Generator().manual_seed(2))
PIXELS = torch.randn(3, 1, 8, 8, generator=torch.Generator().manual_seed(3))


def llama(seed: int = 0) -> PreTrainedModel:
    return tiny_llama(seed=seed)


def gpt2(seed: int = 0, **changes: Any) -> PreTrainedModel:
    torch.manual_seed(seed)
    sizes = {"vocab_size": 97, "n_positions": 96, "n_embd": 32, "n_layer": DEPTH, "n_head": 4}
    return GPT2LMHeadModel(GPT2Config(**{**sizes, "initializer_range": 0.2, **changes}))


def bert(seed: int = 0) -> PreTrainedModel:
    torch.manual_seed(seed)
    return BertForMaskedLM(BertConfig(vocab_size=97, max_position_embeddings=32, **SMALL))


def vit(seed: int = 0) -> PreTrainedModel:
    torch.manual_seed(seed)
    return ViTForImageClassification(ViTConfig(image_size=8, patch_size=4, num_channels=1, num_labels=10, **SMALL))


def bart() -> BartForConditionalGeneration:
    torch.manual_seed(0)
    sides = {
        f"{side}_{name}": value
        for side in ("encoder", "decoder")
        for name, value in {"layers": 3, "attention_heads": 2, "ffn_dim": 16}.items()
    }
    return BartForConditionalGeneration(
        BartConfig(vocab_size=97, d_model=16, max_position_embeddings=32, **sides)
    ).eval()


def gemma(seed: int = 0) -> PreTrainedModel:
    torch.manual_seed(seed)
    config = Gemma3TextConfig(
        vocab_size=97,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=DEPTH,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        sliding_window=4,
        initializer_range=0.2,
        layer_types=["sliding_attention", "full_attention"] * (DEPTH // 2),
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
    )
    return Gemma3ForCausalLM(config)


MAKERS: Mapping[str, tuple[Callable[[int], PreTrainedModel], dict[str, Tensor]]] = {
    "llama": (llama, {"input_ids": IDS}),
    "gpt2": (gpt2, {"input_ids": IDS}),
    "bert": (bert, {"input_ids": IDS}),
    "vit": (vit, {"pixel_values": PIXELS}),
    "gemma": (gemma, {"input_ids": IDS}),
}


@cache
def sources(kind: str) -> dict[str, Stack]:
    with torch.inference_mode(False):
        return {name: load(MAKERS[kind][0](seed).eval()) for seed, name in enumerate(NAMES)}


def stack_of(kind: str) -> Stack:
    return sources(kind)["a"]


@cache
def merged_stack(kind: str) -> Stack:
    return Stack.with_sources(sources(kind))
