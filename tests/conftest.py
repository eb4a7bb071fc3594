"""What several rooms test with: tiny random models, built once, never changed by a test that keeps its word."""

from __future__ import annotations

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.set_num_threads(1)


def tiny_llama(depth: int = 6, vocabulary: int = 97, seed: int = 0) -> LlamaForCausalLM:
    """A random Llama whose layers matter: the weights are ten times the default, so that a wrong plan shows."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=vocabulary, hidden_size=32, intermediate_size=64, num_hidden_layers=depth, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=128, initializer_range=0.2, bos_token_id=1, eos_token_id=2,
        pad_token_id=0,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


@pytest.fixture
def llama() -> LlamaForCausalLM:
    """A fresh six-layer Llama."""
    return tiny_llama()


@pytest.fixture
def ids() -> torch.Tensor:
    """Token ids (2, 11) for the tiny Llama."""
    return torch.randint(3, 97, (2, 11), generator=torch.Generator().manual_seed(1))
