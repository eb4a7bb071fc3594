"""Finding the list of blocks, and refusing to guess."""

import pytest
import torch
from torch import nn
from transformers import Gemma3Config, Gemma3ForConditionalGeneration

from layerwise.errors import UnsupportedModel
from layerwise.stack.blocks import find_blocks
from stack.makers import bart


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
def test_what_is_no_list_of_blocks_is_refused(model: nn.Module, path: str | None, reason: str) -> None:
    with pytest.raises(UnsupportedModel, match=reason):
        find_blocks(model, path)


def test_two_stacks_ask_for_a_choice() -> None:
    with pytest.raises(UnsupportedModel, match=r"2 stacks: .*encoder\.layers \(3 blocks\).*choose one with layers="):
        find_blocks(bart())


def test_the_decoder_of_a_model_of_images_and_text_is_the_stack() -> None:
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = Gemma3Config(
        text_config={**sizes, "vocab_size": 50, "head_dim": 8, "num_key_value_heads": 1},
        vision_config={**sizes, "image_size": 8, "patch_size": 4},
        mm_tokens_per_image=4,
    )
    assert find_blocks(Gemma3ForConditionalGeneration(config)) == "model.language_model.layers"
