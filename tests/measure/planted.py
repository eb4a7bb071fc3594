"""Stacks whose weights have a planted structure over depth; their blocks hold matrices and never run."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from layerwise.stack import Stack


class _Block(nn.Module):
    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        super().__init__()
        for name, weight in weights.items():
            self.register_parameter(name, nn.Parameter(weight.clone()))

    def forward(self, state: Tensor) -> Tensor:
        return state


def planted_stack(weights: Mapping[str, Tensor], dtype: torch.dtype = torch.float32) -> Stack:
    depth = len(next(iter(weights.values())))
    blocks = nn.ModuleList(
        _Block({name: every[layer].to(dtype) for name, every in weights.items()}) for layer in range(depth)
    )
    return Stack(nn.ModuleDict({"blocks": blocks}), "blocks")


def stack_of_layers(layers: list[dict[str, Tensor]]) -> Stack:
    return Stack(nn.ModuleDict({"blocks": nn.ModuleList(_Block(weights) for weights in layers)}), "blocks")


def noise(depth: int, rows: int, columns: int, seed: int = 0) -> Tensor:
    return torch.randn(depth, rows, columns, generator=torch.Generator().manual_seed(seed))


def autoregressive(depth: int, rows: int, columns: int, rho: float, seed: int = 0) -> Tensor:
    fresh = noise(depth, rows, columns, seed)
    layers = [fresh[0]]
    for new in fresh[1:]:
        layers.append(rho * layers[-1] + (1 - rho**2) ** 0.5 * new)
    return torch.stack(layers)


def drifting(depth: int, rows: int, columns: int, seed: int = 0) -> Tensor:
    first, last, shake = noise(3, rows, columns, seed)
    share = torch.linspace(0, 1, depth)[:, None, None]
    return (1 - share) * first + share * last + 0.01 * noise(depth, rows, columns, seed + 1) * shake.std()


def alternating(depth: int, rows: int, columns: int, amplitude: float = 0.5, seed: int = 0) -> Tensor:
    sign = 1.0 - 2.0 * (torch.arange(depth) % 2)
    common = noise(1, rows, columns, seed + 1)
    return noise(depth, rows, columns, seed) + amplitude * sign[:, None, None] * common
