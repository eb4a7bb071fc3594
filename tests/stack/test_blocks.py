"""Finding the list of blocks, and refusing to guess."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from transformers import BartConfig, BartForConditionalGeneration

from layerwise.errors import UnsupportedModel
from layerwise.stack.blocks import find_blocks


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


def test_the_stack_of_a_transformers_model(llama: nn.Module) -> None:
    assert find_blocks(llama) == "model.layers"


def test_an_unmarked_module_is_found_by_its_largest_list() -> None:
    assert find_blocks(Tower()) == "encoder.blocks"


def test_the_user_may_name_the_list() -> None:
    assert find_blocks(Tower(), "heads") == "heads"


def test_a_wrong_name_is_answered_with_the_near_ones() -> None:
    with pytest.raises(UnsupportedModel, match=r"encoder\.block'.*did you mean encoder\.blocks"):
        find_blocks(Tower(), "encoder.block")


def test_a_name_of_something_else_is_refused() -> None:
    with pytest.raises(UnsupportedModel, match=r"not an nn\.ModuleList"):
        find_blocks(Tower(), "encoder")


def test_a_module_without_blocks_is_refused() -> None:
    with pytest.raises(UnsupportedModel, match=r"no nn\.ModuleList of repeated blocks"):
        find_blocks(nn.Linear(2, 2))


def test_two_stacks_ask_for_a_choice() -> None:
    config = BartConfig(
        vocab_size=50, d_model=16, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=16, decoder_ffn_dim=16, max_position_embeddings=32,
    )  # fmt: skip
    with pytest.raises(UnsupportedModel, match=r"2 stacks: .*encoder\.layers \(2 blocks\).*choose one with layers="):
        find_blocks(BartForConditionalGeneration(config))
