"""Averages of neighbouring layers, as layers of a model of their own: how a merged layer is said in a plan.

Merging layers (LaCo, Yang et al. 2024, arXiv 2402.11187; MKA, Liu et al. 2024, arXiv 2406.16330) replaces neighbours by
one layer with other weights. A plan holds no weights, but it may take a layer from a model that it names
(`layerwise.plan.checks`). So the averages are a second model of the same shape: layer l of `mean2` has the mean of the
weights of the layers l and l+1, and

    0-4 mean2:5 7-11

runs that average where the layers 5 and 6 were. The engine, the store and the report need to know no more: a merged
candidate is a plan like any other. `with_averages` makes the stack that can run it; an average is made when it is first
used, so that a search holds only those that it has tried.
"""

from __future__ import annotations

import copy
from itertools import pairwise

import torch
from torch import nn

from layerwise.errors import UnsupportedModel
from layerwise.plan import Plan
from layerwise.search.moves import AVERAGE_OF_TWO
from layerwise.stack import Stack


class AveragedLayers(Stack):
    """The layers of `stack`, each averaged with the next; the last one has no next and is as it was."""

    def __init__(self, stack: Stack) -> None:
        vars(self).update(vars(stack))
        self.sources = {}
        self._whole = stack
        self._averages: dict[int, nn.Module] = {}

    def block(self, layer: int, source: str | None = None) -> nn.Module:
        """The module of an average, made when it is first asked for."""
        if layer + 1 >= self.depth:
            return self._whole.block(layer)
        if layer not in self._averages:
            self._averages[layer] = averaged([self._whole.block(layer), self._whole.block(layer + 1)])
        return self._averages[layer]


def with_averages(stack: Stack, plan: Plan | None = None) -> Stack:
    """`stack`, able to run plans with `mean2:l`; as it is where `plan` has none, or where the name is taken.

    Raises `UnsupportedModel` for a model whose neighbouring layers are not built alike.

    >>> from layerwise.stack import load
    >>> with_averages(load("demo")).check("0-4 mean2:5 7-11")
    """
    if AVERAGE_OF_TWO in stack.sources or (plan is not None and AVERAGE_OF_TWO not in plan.sources()):
        return stack
    shapes = [_shapes(stack.block(layer)) for layer in range(stack.depth)]
    for layer, (first, second) in enumerate(pairwise(shapes)):
        if first != second:
            raise UnsupportedModel(
                f"the layers {layer} and {layer + 1} of {stack.source.name} have weights of other names or shapes, so "
                "they have no average: leave the move merge out"
            )
    able = copy.copy(stack)
    able.sources = {**stack.sources, AVERAGE_OF_TWO: AveragedLayers(stack)}
    return able


def foreign(stack: Stack) -> tuple[str, ...]:
    """The names of other models whose layers the stack can run; averages are layers of its own.

    >>> from layerwise.stack import load
    >>> foreign(with_averages(load("demo")))
    ()
    """
    return tuple(name for name, source in stack.sources.items() if source.model is not stack.model)


def _shapes(block: nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(weight.shape) for name, weight in block.named_parameters()}


def averaged(blocks: list[nn.Module]) -> nn.Module:
    """A copy of the first block whose floating-point weights are the means of those of all, taken in float32."""
    result = copy.deepcopy(blocks[0])
    weights = [dict(block.named_parameters()) for block in blocks]
    with torch.no_grad():
        for name, weight in result.named_parameters():
            if weight.is_floating_point():
                wide = torch.promote_types(weight.dtype, torch.float32)
                weight.copy_(torch.stack([each[name].to(wide) for each in weights]).mean(dim=0))
    return result
