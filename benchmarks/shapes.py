"""The models that several benchmarks are run on."""

from __future__ import annotations

import torch
from transformers import LlamaConfig, LlamaForCausalLM


def smol_shape() -> LlamaForCausalLM:
    """A Llama of SmolLM2-135M's shape, with random weights."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
    )
    return LlamaForCausalLM(config).eval()
