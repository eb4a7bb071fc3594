"""Image classifiers whose layers do what is planted: nothing, or all there is to do."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from layerwise.data.splits import Example, Examples, Splits
from layerwise.stack import Stack

CLASSES, WIDTH, TOKENS = 8, 16, 3


class Listed(Examples):
    """Examples out of a list."""

    def __init__(self, examples: Sequence[Example]) -> None:
        self.examples = list(examples)

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, index: int) -> Example:
        return self.examples[index]


def images(count: int, seed: int = 0) -> Listed:
    """Noise of shape (TOKENS, WIDTH), whose label is the largest of the first CLASSES features of token 0."""
    pixels = torch.randn(count, TOKENS, WIDTH, generator=torch.Generator().manual_seed(seed))
    return Listed([{"pixel_values": x, "labels": x[0, :CLASSES].argmax()} for x in pixels])


def splits(count: int) -> Splits:
    """Noise to train, to select and to report, `count` images each."""
    return Splits("noise", "d" * 64, images(count, 1), images(count, 2), images(count, 3), tuple("abcdefgh"))


class Idle(nn.Module):
    """A layer that adds nothing."""

    def forward(self, state: Tensor) -> Tensor:
        return state


class Reader(nn.Module):
    """A layer that copies what the label depends on to where the head looks."""

    def forward(self, state: Tensor) -> Tensor:
        read = torch.zeros_like(state)
        read[..., CLASSES:] = state[..., :CLASSES]
        return state + read


class Turn(nn.Module):
    """A layer that mixes features by a random matrix and a bend, so that its order among others counts."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        chance = torch.Generator().manual_seed(seed)
        self.weight = nn.Parameter(torch.randn(WIDTH, WIDTH, generator=chance) / 2)

    def forward(self, state: Tensor) -> Tensor:
        return state + torch.tanh(state @ self.weight)


class Classifier(nn.Module):
    """Layers one after another over (batch, TOKENS, WIDTH); the logits are features CLASSES.. of token 0."""

    def __init__(self, layers: Sequence[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.volume = nn.Parameter(torch.tensor(1.0))

    def forward(self, pixel_values: Tensor) -> Tensor:
        state = pixel_values.clone()
        state[..., CLASSES:] /= 10_000
        for layer in self.layers:
            state = layer(state)
        return self.volume * state[:, 0, CLASSES:]


def classifier(layers: Sequence[nn.Module]) -> Stack:
    """A stack over a classifier of these layers."""
    return Stack(Classifier(layers).eval(), "layers")


def turning(depth: int, seed: int = 0) -> Stack:
    """A classifier all of whose layers matter, and their order too."""
    return classifier([Turn(100 * seed + layer) for layer in range(depth)])
