"""Image classifiers with planted layers: idle ones, and one that does everything."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from layerwise.data.splits import Example, Examples, Splits
from layerwise.stack import Stack

CLASSES, WIDTH, TOKENS = 8, 16, 3


class Listed(Examples):
    def __init__(self, examples: Sequence[Example]) -> None:
        self.examples = list(examples)

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, index: int) -> Example:
        return self.examples[index]


def images(count: int, seed: int = 0) -> Listed:
    pixels = torch.randn(count, TOKENS, WIDTH, generator=torch.Generator().manual_seed(seed))
    return Listed([{"pixel_values": x, "labels": x[0, :CLASSES].argmax()} for x in pixels])


def splits(count: int) -> Splits:
    return Splits("noise", "d" * 64, images(count, 1), images(count, 2), images(count, 3), tuple("abcdefgh"))


class Idle(nn.Module):
    def forward(self, state: Tensor) -> Tensor:
        return state


class Reader(nn.Module):
    def forward(self, state: Tensor) -> Tensor:
        read = torch.zeros_like(state)
        read[..., CLASSES:] = state[..., :CLASSES]
        return state + read


class Turn(nn.Module):
    def __init__(self, seed: int) -> None:
        super().__init__()
        chance = torch.Generator().manual_seed(seed)
        self.weight = nn.Parameter(torch.randn(WIDTH, WIDTH, generator=chance) / 2)

    def forward(self, state: Tensor) -> Tensor:
        return state + torch.tanh(state @ self.weight)


class Classifier(nn.Module):
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
    return Stack(Classifier(layers).eval(), "layers")


def turning(depth: int, seed: int = 0) -> Stack:
    return classifier([Turn(100 * seed + layer) for layer in range(depth)])
