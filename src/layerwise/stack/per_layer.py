"""Reorder tensors outside the blocks that have entries for every layer (embeddings, projections, layer weights, heads).

They are recognized by their shapes: an axis is longer if the same model is built with one more layer.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from layerwise.data.auto_classes import on_meta
from layerwise.stack.blocks import block_list
from layerwise.stack.configuration import OWN_TYPES
from layerwise.stack.executors.clone import subclass
from layerwise.stack.executors.config_view import configuration_in_order
from layerwise.stack.executors.entries import REFUSED_COPIES, own_blocks
from layerwise.stack.placement import named_tensors

# Attribute of a module with its tensors in visit order, by name.
_ORDERED = "_layerwise_ordered"

_CACHE: dict[tuple[type, str, str], dict[str, PerLayer]] = {}


@dataclass(frozen=True, slots=True)
class PerLayer:
    """An axis of a tensor with `first` shared entries, followed by `width` entries per layer.

    If `computes_outputs`, the output of the embedding or linear layer has this axis, too.
    """

    shape: tuple[int, ...]
    axis: int
    width: int
    first: int
    computes_outputs: bool

    def gather(self, tensor: Tensor, order: Sequence[int], axis: int | None = None) -> Tensor:
        """Reorder the entries of `tensor` to follow the layers in `order`, along this axis or another one."""
        axis = self.axis if axis is None else axis
        layers = torch.tensor(list(order), device=tensor.device)[:, None] * self.width + self.first
        entries = (layers + torch.arange(self.width, device=tensor.device)).flatten()
        return tensor.index_select(axis, torch.cat([torch.arange(self.first, device=tensor.device), entries]))

    def added(self, visits: int, depth: int) -> int:
        elements = torch.Size(self.shape).numel() // self.shape[self.axis]
        return elements * self.width * (visits - depth)


def per_layer_tensors(model: nn.Module, path: str) -> dict[str, PerLayer]:
    """Return the tensors outside the blocks that have entries for every layer. The keys are their names.

    The result is empty if the class cannot build the model from its configuration alone.
    """
    parts = path.split(".")
    owners = [".".join(parts[:count]) for count in range(len(parts))]
    root = next((name for name in owners if isinstance(model.get_submodule(name), PreTrainedModel)), None)
    built: Any = None if root is None else model.get_submodule(root)
    if root is None or built.config.model_type.startswith(OWN_TYPES):
        return {}  # layerwise's own models apply weights by layer in any order
    inside = path.removeprefix(f"{root}.") if root else path
    key = type(built), inside, repr(built.config.to_dict())
    if key not in _CACHE:
        _CACHE[key] = _find_tensors(built, inside)
    return {f"{root}.{name}" if root else name: each for name, each in _CACHE[key].items()}


def _find_tensors(model: Any, path: str) -> dict[str, PerLayer]:
    depth = len(own_blocks(block_list(model, path)))
    try:
        own, longer = (
            on_meta(type(model), configuration_in_order(model, path, order, depth))
            for order in (range(depth), (*range(depth), 0))
        )
    except Exception:  # a class may refuse a configuration in any way
        return {}
    shapes = {name: tuple(tensor.shape) for name, tensor in named_tensors(longer)}
    tensors: dict[str, PerLayer] = {}
    for name, tensor in named_tensors(own):
        shape, other = tuple(tensor.shape), shapes.get(name, ())
        axes = [axis for axis, sizes in enumerate(zip(shape, other, strict=False)) if sizes[0] != sizes[1]]
        if name.startswith(f"{path}.") or len(shape) != len(other) or len(axes) != 1:
            continue
        (axis,) = axes
        width, (owner, _, leaf) = other[axis] - shape[axis], name.rpartition(".")
        module = own.get_submodule(owner)
        outputs = 0 if isinstance(module, nn.Linear) else 1 if isinstance(module, nn.Embedding) else None
        if 0 < width <= shape[axis] // depth:
            first = shape[axis] - depth * width
            tensors[name] = PerLayer(
                shape, axis, width, first, outputs == axis and (leaf == "weight" or len(shape) == 1)
            )
    return tensors


@contextmanager
def per_layer_in_order(model: nn.Module, path: str, order: Sequence[int]) -> Iterator[None]:
    """Make the modules outside the blocks use their per-layer entries in `order`, without changing the tensors."""
    identity = tuple(range(len(own_blocks(block_list(model, path)))))
    tensors = {} if tuple(order) == identity else per_layer_tensors(model, path)
    with ExitStack() as undo:
        for name, each in tensors.items():
            owner, _, leaf = name.rpartition(".")
            module = model.get_submodule(owner)
            if each.computes_outputs and leaf == "weight":
                hook = partial(_gather_output, each, tuple(order))
                undo.callback(module.register_forward_hook(hook).remove)
            elif not each.computes_outputs:
                undo.enter_context(_reading(module, leaf, partial(each.gather, order=tuple(order))))
        yield


def _gather_output(each: PerLayer, order: Sequence[int], module: nn.Module, args: Any, output: Tensor) -> Tensor:
    return each.gather(output, order, axis=-1)


@contextmanager
def _reading(module: nn.Module, name: str, gather: Callable[[Tensor], Tensor]) -> Iterator[None]:
    kind = type(module)
    vars(module).setdefault(_ORDERED, {})[name] = gather
    module.__class__ = _ordered(cast(Hashable, kind), name)
    try:
        yield
    finally:
        module.__class__ = kind
        del vars(module)[_ORDERED][name]


@cache
def _ordered(kind: Any, name: str) -> Any:
    def read(self: Any) -> Tensor:
        return vars(self)[_ORDERED][name](kind.__getattr__(self, name))

    return subclass(kind, {**REFUSED_COPIES, name: property(read)})
