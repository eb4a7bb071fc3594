"""A cache as the members of a group see it when they run as one: the rows of all members, and one slot for each.

Every member's slot is a slot as any other, which may be cropped, reordered, moved or copied. The slots of a group hold
the pieces of one tensor as long as nobody puts other tensors there, so that attention, which reads the rows of all
members, finds them side by side. That tensor is the beginning of a room for some more tokens, which are written behind
it: what is there is not copied for every token.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cache as remembered
from typing import Any, cast

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer, StaticLayer

_JOINT = "_layerwise_joint"


ROOM = 64
"""Tokens that a room has places for, beyond those that are there when it is made."""


@dataclass(slots=True, eq=False)
class _Room:
    """Keys and values `(rows, heads, places, size)`, of which the first `filled` places are taken."""

    keys: Tensor
    values: Tensor
    filled: int

    @classmethod
    def holding(cls, keys: Tensor, values: Tensor) -> _Room:
        """A new room that begins with these."""
        made = []
        for each in (keys, values):
            room = each.new_empty((*each.shape[:-2], each.shape[-2] + ROOM, each.shape[-1]))
            room[..., : each.shape[-2], :] = each
            made.append(room)
        return cls(made[0], made[1], keys.shape[-2])

    def takes(self, length: int, keys: Tensor) -> bool:
        """Whether `keys` may be written behind `length` others: there are places, and nobody else has taken them."""
        fits = self.filled == length and length + keys.shape[-2] <= self.keys.shape[-2]
        return fits and self.keys.is_inference() == torch.is_inference_mode_enabled()

    def write(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Take the next places; returns all keys and values that are there."""
        start, self.filled = self.filled, self.filled + keys.shape[-2]
        self.keys[..., start : self.filled, :] = keys
        self.values[..., start : self.filled, :] = values
        return self.keys[..., : self.filled, :], self.values[..., : self.filled, :]


@dataclass(frozen=True, slots=True, eq=False)
class _Joint:
    """The keys and values of all members, the pieces of them that stand in the members' slots, and their room."""

    keys: Tensor
    values: Tensor
    pieces: tuple[tuple[Tensor, Tensor], ...]
    room: _Room | None

    @classmethod
    def of(cls, keys: Tensor, values: Tensor, layers: Sequence[Any], room: _Room | None = None) -> _Joint:
        """The joint tensors, their pieces put into the slots `layers`."""
        pieces = tuple(zip(keys.chunk(len(layers)), values.chunk(len(layers)), strict=True))
        made = cls(keys, values, pieces, room)
        for layer, (own_keys, own_values) in zip(layers, pieces, strict=True):
            layer.keys, layer.values = own_keys, own_values
        setattr(layers[0], _JOINT, made)
        return made

    def grown(self, keys: Tensor, values: Tensor, layers: Sequence[Any]) -> _Joint:
        """These with `keys` and `values` behind them, in the slots `layers`."""
        if torch.is_grad_enabled():
            return self.of(torch.cat([self.keys, keys], dim=-2), torch.cat([self.values, values], dim=-2), layers)
        room = self.room
        if room is None or not room.takes(self.keys.shape[-2], keys):
            room = _Room.holding(self.keys, self.values)
            if not room.takes(room.filled, keys):  # more at once than a room has places for
                return self.of(torch.cat([self.keys, keys], dim=-2), torch.cat([self.values, values], dim=-2), layers)
        return self.of(*room.write(keys, values), layers, room)

    def stands_in(self, layers: Sequence[Any]) -> bool:
        """Whether the slots still hold these very pieces."""
        return len(self.pieces) == len(layers) and all(
            layer.keys is keys and layer.values is values
            for layer, (keys, values) in zip(layers, self.pieces, strict=True)
        )


def of_group(cache: Cache, slots: Sequence[int]) -> Any:
    """`cache` for a block that runs for several members, the first of which has the slot `slots[0]`."""
    made = object.__new__(_kind(cast(Hashable, type(cache))))
    object.__setattr__(made, "_whole", cache)
    object.__setattr__(made, "_slots", tuple(slots))
    return made


@remembered
def _kind(kind: Any) -> Any:
    """The class of caches of class `kind` that hold several members' rows under one slot."""

    def __getattr__(self: Any, name: str) -> Any:
        return getattr(self._whole, name)

    def __setattr__(self: Any, name: str, value: Any) -> None:
        setattr(self._whole, name, value)

    def update(self: Any, keys: Tensor, values: Tensor, layer_idx: int, *args: Any, **kwargs: Any) -> Any:
        further = layer_idx - self._slots[0]
        return _update(self._whole, [slot + further for slot in self._slots], keys, values, args, kwargs)

    namespace = {"__getattr__": __getattr__, "__setattr__": __setattr__, "update": update}
    return type(kind.__name__, (kind,), {"__module__": kind.__module__, **namespace})


def _update(cache: Any, slots: list[int], keys: Tensor, values: Tensor, args: Any, kwargs: Any) -> Any:
    """Add every member's keys and values to its slot; returns those of all members, with all earlier ones."""
    layers = _joinable(cache, slots)
    if layers:
        joint: _Joint | None = vars(layers[0]).get(_JOINT)
        if joint is not None and joint.stands_in(layers):
            if type(layers[0]) is DynamicLayer:
                joint = joint.grown(keys, values, layers)
            else:
                _write(joint, layers, keys, values)
            return joint.keys, joint.values
        vars(layers[0]).pop(_JOINT, None)
    rows = zip(keys.chunk(len(slots)), values.chunk(len(slots)), strict=True)
    collected = [cache.update(*pair, slot, *args, **kwargs) for pair, slot in zip(rows, slots, strict=True)]
    together = torch.cat([each for each, _ in collected]), torch.cat([each for _, each in collected])
    layers = _joinable(cache, slots)
    if layers and len(set(slots)) == len(slots):
        _Joint.of(*together, layers)
    return together


def _joinable(cache: Any, slots: list[int]) -> list[Any]:
    """The slots' layers where all are of one kind whose tensors may be pieces of a larger one, and are in place."""
    layers = cache.layers
    if getattr(cache, "offloading", False) or max(slots) >= len(layers):
        return []
    chosen = [layers[slot] for slot in slots]
    kind = type(chosen[0])
    if kind not in (DynamicLayer, StaticLayer):
        return []
    return chosen if all(type(each) is kind and each.is_initialized for each in chosen) else []


def _write(joint: _Joint, layers: Sequence[Any], keys: Tensor, values: Tensor) -> None:
    """Write behind what stands in slots of a fixed length, in the tensors of all of them."""
    length = keys.shape[-2]
    positions = torch.arange(length, device=keys.device) + layers[0].cumulative_length
    joint.keys.index_copy_(2, positions, keys)
    joint.values.index_copy_(2, positions, values)
    for layer in layers:
        layer.cumulative_length.add_(length)
