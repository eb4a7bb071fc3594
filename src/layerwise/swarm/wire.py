"""Tensors and the calls of blocks as bytes, and back.

Masks, rotary embeddings, positions and flags travel as tensors and plain MessagePack, so that a node needs only the
blocks. Shared tensors are sent once; the cache stays on the node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from math import prod
from typing import Any

import msgspec
import torch
from torch import Tensor
from transformers.cache_utils import Cache

from layerwise.errors import SwarmError
from layerwise.stack import Capture
from layerwise.stack.executors.capture import read_state
from layerwise.swarm.messages import Array, Pass

_CPU = torch.device("cpu")

_LITERALS = frozenset((bool, int, float, str))

_ENCODER, _DECODER = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder()

_TENSOR, _STATE, _CACHE, _TUPLE, _DICT = "tensor", "state", "cache", "tuple", "dict"


def to_array(tensor: Tensor) -> Array:
    plain = tensor.detach() if tensor.requires_grad else tensor
    plain = plain if plain.device.type == "cpu" else plain.to("cpu")
    if plain.dtype is torch.bfloat16:  # numpy does not know it
        plain = plain.contiguous().view(torch.int16)
    return Array(_dtype_name(tensor.dtype), tuple(tensor.shape), plain.numpy().tobytes())


@cache
def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def to_tensor(array: Array, device: torch.device | str = "cpu") -> Tensor:
    """The tensor of an array. Raises `SwarmError` where dtype, shape and bytes do not fit together."""
    dtype = _dtype(array.dtype)
    count = prod(array.shape)
    if count * dtype.itemsize != len(array.data):
        raise SwarmError(
            f"an array of shape {array.shape} and dtype {array.dtype} takes {count * dtype.itemsize} bytes; "
            f"{len(array.data)} came"
        )
    if not count:
        return torch.empty(array.shape, dtype=dtype, device=device)
    made = torch.frombuffer(bytearray(array.data), dtype=dtype).view(array.shape)
    return made if device == "cpu" or device == _CPU else made.to(device)


@cache
def _dtype(name: str) -> torch.dtype:
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise SwarmError(f"an array has the dtype {name!r}, which torch does not know")
    return dtype


def encode(captured: Capture, layers: Iterable[int], index: int = 0, state: Array | None = None) -> Pass:
    """Encode pass `index` through `layers` on `state` (default: the captured one).

    Raises `SwarmError` for arguments that are not plain data.
    """
    arrays: list[Array] = []
    indices: dict[int, int] = {}

    def encoded(value: Any, own: Tensor) -> Any:
        if value is None or type(value) in _LITERALS:
            return value
        if value is own:
            return {_STATE: True}
        if isinstance(value, Tensor):
            if id(value) not in indices:
                indices[id(value)] = len(arrays)
                arrays.append(to_array(value))
            return {_TENSOR: indices[id(value)]}
        if isinstance(value, Cache):
            return {_CACHE: f"{type(value).__module__}:{type(value).__qualname__}"}
        if isinstance(value, tuple):
            return {_TUPLE: [encoded(item, own) for item in value]}
        if isinstance(value, list):
            return [encoded(item, own) for item in value]
        if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
            return {_DICT: {name: encoded(item, own) for name, item in value.items()}}
        raise SwarmError(
            f"a block is called with a {type(value).__name__}, which is neither a tensor nor plain data and cannot be "
            "sent to another machine"
        )

    made: dict[tuple[Any, ...], bytes] = {}
    calls: list[bytes] = []
    for layer in layers:
        call = captured.calls[layer]
        same = (*map(id, call.args), *call.kwargs, *map(id, call.kwargs.values()))
        if same not in made:
            own = read_state(call.args, call.kwargs)
            items = [encoded(item, own) for item in call.args]
            made[same] = _ENCODER.encode([items, {name: encoded(value, own) for name, value in call.kwargs.items()}])
        calls.append(made[same])
    return Pass(index, to_array(captured.state) if state is None else state, tuple(arrays), tuple(calls))


@dataclass(frozen=True, slots=True)
class CallForm:
    """A call as it was encoded: its arguments, the place of its state, and the places and classes of its caches."""

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
        raise SwarmError(f"a block is called with {len(states)} states; a node runs blocks that take one")
    caches = tuple((key, value[_CACHE]) for key, value in values.items() if isinstance(value, dict) and _CACHE in value)
    return CallForm(tuple(args), kwargs, states[0], caches)


def decoded(value: Any, tensor: Callable[[int], Tensor]) -> Any:
    """Return an encoded argument as it was, with `None` for the state and the cache."""
    if isinstance(value, list):
        return [decoded(item, tensor) for item in value]
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == _TENSOR:
        return tensor(content)
    if kind in (_STATE, _CACHE):
        return None
    if kind == _TUPLE:
        return tuple([decoded(item, tensor) for item in content])
    return {name: decoded(item, tensor) for name, item in content.items()}
