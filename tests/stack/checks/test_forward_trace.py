"""Blocks that modify their inputs are refused, since other layers start from the same tensors."""

from contextlib import AbstractContextManager, nullcontext

import pytest
import torch
from torch import Tensor, nn

from layerwise.errors import UnsupportedModel
from layerwise.stack import load

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
        ("in place", r"block 2 changes the hidden state in place, .* x = x \+ f\(x\), not x \+= f\(x\)"),
        ("behind the back", "block 2 changes the hidden state"),
        ("a view", "block 2 changes the hidden state"),
        ("mask", "block 2 changes its argument at position 1"),
        ("table", "block 2 changes its argument tables"),
    ],
)
def test_a_block_that_changes_what_it_is_handed_is_refused(
    way: str, reason: str, mode: type[AbstractContextManager[None]]
) -> None:
    with mode(), pytest.raises(UnsupportedModel, match=f"Adders: {reason}"):
        load(Adders(way)).capture(x=torch.randn(2, 3, 4))


@WITH_AND_WITHOUT_VERSIONS
def test_a_block_that_makes_new_tensors_is_accepted(mode: type[AbstractContextManager[None]]) -> None:
    x = torch.randn(2, 3, 4)
    with mode():
        assert load(Adders("plain")).capture(x=x).state.shape == x.shape
