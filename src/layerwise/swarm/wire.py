"""Conversion of tensors and block calls to bytes and back.

Masks, rotary embeddings, positions and flags are sent along, so that a node needs only the blocks. A tensor that
several calls share is sent once. Caches stay on the nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from math import prod, sqrt
from typing import Any

import msgspec
import torch
from torch import Tensor
from transformers.cache_utils import Cache

from layerwise.errors import SwarmError
from layerwise.stack import Capture
from layerwise.stack.executors.capture import read_state
from layerwise.swarm.messages import Array, Pass


def tolerance(width: int, visits: int, eps: float) -> float:
    """Return the largest relative difference between two outputs that counts as rounding, at most 0.05.

    The result is 16 times the tolerance of `layerwise.stack.rounding`, since caches and devices may differ.
    """
    return min(0.05, 16 * 4 * eps * sqrt(width * max(1, visits)))


def agree(one: Tensor, other: Tensor, visits: int) -> bool:
    """Return True if two outputs are equal up to rounding, relative to the output with the larger norm."""
    wide = torch.promote_types(one.dtype, torch.float32)
    left, right = one.to(wide), other.to(wide)
    larger = max(float(left.norm()), float(right.norm()), 1e-30)
    return float((left - right).norm()) / larger <= tolerance(one.shape[-1], visits, torch.finfo(one.dtype).eps)


_CPU = torch.device("cpu")

_LITERALS = frozenset((bool, int, float, str))

_ENCODER, _DECODER = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder()

_TENSOR, _STATE, _CACHE, _TUPLE, _DICT = "tensor", "state", "cache", "tuple", "dict"


def to_array(tensor: Tensor) -> Array:
    plain = tensor.detach() if tensor.requires_grad else tensor
    plain = plain if plain.device.type == "cpu" else plain.to("cpu")
    if plain.dtype is torch.bfloat16:  # numpy does not support it
        plain = plain.contiguous().view(torch.int16)
    return Array(_dtype_name(tensor.dtype), tuple(tensor.shape), plain.numpy().tobytes())


@cache
def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def to_tensor(array: Array, device: torch.device | str = "cpu") -> Tensor:
    """Decode an array. Raises `SwarmError` if its dtype, shape and bytes are inconsistent."""
    dtype = _dtype(array.dtype)
    count = prod(array.shape)
    if count * dtype.itemsize != len(array.data):
        raise SwarmError(
            f"An array of shape {array.shape} and dtype {array.dtype} must have {count * dtype.itemsize} bytes, got "
            f"{len(array.data)}."
        )
    if not count:
        return torch.empty(array.shape, dtype=dtype, device=device)
    made = torch.frombuffer(bytearray(array.data), dtype=dtype).view(array.shape)
    return made if device == "cpu" or device == _CPU else made.to(device)


@cache
def _dtype(name: str) -> torch.dtype:
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise SwarmError(f"dtype must be the name of a torch dtype, got {name!r}.")
    return dtype


def encode(captured: Capture, layers: Iterable[int], index: int = 0, state: Array | None = None) -> Pass:
    """Encode the calls of `layers` in forward pass `index`. Their input is `state` (default: the state in `captured`).

    Raises `SwarmError` for arguments other than tensors and plain data.
    """
    arrays: list[Array] = []
    indices: dict[int, int] = {}

    def encode_value(value: Any, state_in: Tensor) -> Any:
        if value is None or type(value) in _LITERALS:
            return value
        if value is state_in:
            return {_STATE: True}
        if isinstance(value, Tensor):
            if id(value) not in indices:
                indices[id(value)] = len(arrays)
                arrays.append(to_array(value))
            return {_TENSOR: indices[id(value)]}
        if isinstance(value, Cache):
            return {_CACHE: f"{type(value).__module__}:{type(value).__qualname__}"}
        if isinstance(value, tuple):
            return {_TUPLE: [encode_value(item, state_in) for item in value]}
        if isinstance(value, list):
            return [encode_value(item, state_in) for item in value]
        if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
            return {_DICT: {name: encode_value(item, state_in) for name, item in value.items()}}
        raise SwarmError(
            f"A block is called with a {type(value).__name__}, which is neither a tensor nor plain data and cannot be "
            "sent to another machine."
        )

    encoded: dict[tuple[Any, ...], bytes] = {}
    calls: list[bytes] = []
    for layer in layers:
        call = captured.calls[layer]
        same = (*map(id, call.args), *call.kwargs, *map(id, call.kwargs.values()))
        if same not in encoded:
            state_in = read_state(call.args, call.kwargs)
            items = [encode_value(item, state_in) for item in call.args]
            kwargs = {name: encode_value(value, state_in) for name, value in call.kwargs.items()}
            encoded[same] = _ENCODER.encode([items, kwargs])
        calls.append(encoded[same])
    return Pass(index, to_array(captured.state) if state is None else state, tuple(arrays), tuple(calls))


@dataclass(frozen=True, slots=True)
class CallForm:
    """A decoded call of a block. `state` and `caches` give the positions or keywords of the hidden state and caches."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    state: int | str
    caches: tuple[tuple[int | str, str], ...]


@lru_cache(maxsize=4096)
def read_call(call: bytes) -> CallForm:
    args, kwargs = _DECODER.decode(call)
    values: dict[int | str, Any] = {**dict(enumerate(args)), **kwargs}
    states = [key for key, value in values.items() if value == {_STATE: True}]
    if len(states) != 1:
        raise SwarmError(f"A block must be called with one hidden state, got {len(states)}.")
    caches = tuple((key, value[_CACHE]) for key, value in values.items() if isinstance(value, dict) and _CACHE in value)
    return CallForm(tuple(args), kwargs, states[0], caches)


def decode_value(value: Any, tensor: Callable[[int], Tensor]) -> Any:
    """Decode an argument. The hidden state and caches become `None`."""
    if isinstance(value, list):
        return [decode_value(item, tensor) for item in value]
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == _TENSOR:
        return tensor(content)
    if kind in (_STATE, _CACHE):
        return None
    if kind == _TUPLE:
        return tuple([decode_value(item, tensor) for item in content])
    return {name: decode_value(item, tensor) for name, item in content.items()}
