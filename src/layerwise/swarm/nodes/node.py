"""A node holds some layers of a model, and the caches of each request.

It answers every message, including those that it cannot process. It counts the passes of each request through each
layer evaluation, so that lost and repeated calls are detected. One-token calls of several requests run as one batch:
keys and values of shorter texts are padded on the left and masked, as in `generate`. Hidden states then differ by
rounding from those computed without a batch.
"""

from __future__ import annotations

import os
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from transformers.cache_utils import DynamicCache

from layerwise.errors import ModelError
from layerwise.plan.checks import Sublayer
from layerwise.stack import Stack
from layerwise.stack.branches import only
from layerwise.stack.executors.capture import returned_state
from layerwise.swarm.messages import (
    Done,
    LoadLayers,
    Message,
    Pass,
    Refused,
    Release,
    RemoteLayer,
    RemoteVisit,
    Reply,
    Response,
    RunLayers,
)
from layerwise.swarm.nodes.blocks import build_blocks
from layerwise.swarm.wire import agree, decode_value, read_call, to_array, to_tensor

MASK = "attention_mask"
"""Keyword argument of transformers blocks for the attention mask. It may be `None` if no position is masked."""

BatchKey: TypeAlias = tuple[object, ...]


def group_calls(messages: Sequence[Message]) -> list[list[int]]:
    """Group the positions of messages that can run as one batch. Every other message is a group by itself.

    A batch has one-token calls of different requests through the same layers, with the same block arguments.
    """
    kinds: dict[BatchKey, list[int]] = {}
    for position, message in enumerate(messages):
        kinds.setdefault(_batch_key(message) or (position,), []).append(position)
    groups: list[list[int]] = []
    for positions in kinds.values():
        distinct = {getattr(messages[position], "request", "") for position in positions}
        groups += [positions] if len(distinct) == len(positions) else [[position] for position in positions]
    return groups


def is_one_token(call: RunLayers) -> bool:
    return call.given.index > 0 and call.given.state.shape[:-1] == (1, 1)


def _batch_key(message: Message) -> BatchKey | None:
    if not isinstance(message, RunLayers) or not is_one_token(message):
        return None
    return message.visits, message.given.calls


class BlockCalls:
    """Combines the block arguments of several passes, which differ only in tensors and caches, into one batch."""

    def __init__(self, passes: Sequence[Pass], device: torch.device | str) -> None:
        self._passes, self._device = passes, device
        self._tensors: dict[int, Tensor] = {}
        self._made: dict[bytes, tuple[list[Any], dict[str, Any]]] = {}

    def build(
        self, visit: int, layer: int, caches: Sequence[Callable[[str], Any]]
    ) -> tuple[list[Any], dict[str, Any], int | str]:
        """Build the arguments of layer evaluation `visit`, and the position or keyword of its hidden state.

        `caches` has one function per pass, which returns the pass's cache given the name of a cache class.
        """
        call = self._passes[0].calls[visit]
        form = read_call(call)
        if call not in self._made:
            self._made[call] = (
                [decode_value(value, self._tensor) for value in form.args],
                {name: decode_value(value, self._tensor) for name, value in form.kwargs.items()},
            )
        args, kwargs = self._made[call]
        args, kwargs = args.copy(), kwargs.copy()
        for key, kind in form.caches:
            own_caches = [cache(kind) for cache in caches]
            cache = own_caches[0] if len(own_caches) == 1 else CacheBatch(own_caches)
            if isinstance(key, int):
                args[key] = cache
            else:
                kwargs[key] = cache
            if isinstance(cache, CacheBatch) and kwargs.get(MASK, self) is None:
                kwargs[MASK] = cache.mask(layer, self._device)
        return args, kwargs, form.state

    def _tensor(self, index: int) -> Tensor:
        if index not in self._tensors:
            self._tensors[index] = stack_batch([to_tensor(each.arrays[index]) for each in self._passes]).to(
                self._device
            )
        return self._tensors[index]


def stack_batch(tensors: Sequence[Tensor]) -> Tensor:
    """Concatenate tensors along the batch dimension, padding shorter ones on the left with masked values."""
    first = tensors[0]
    if first.ndim < 2 or len(tensors) == 1:
        return first
    longest = max(each.shape[-1] for each in tensors)
    hidden = torch.finfo(first.dtype).min if first.is_floating_point() else 0
    padded = [
        torch.nn.functional.pad(each, (longest - each.shape[-1], 0), value=hidden) if each.shape[-1] < longest else each
        for each in tensors
    ]
    return torch.cat(padded)


class CacheBatch:
    """The caches of several requests, updated like the cache of one batch."""

    def __init__(self, caches: Sequence[Any]) -> None:
        self._caches = caches

    def update(self, keys: Tensor, values: Tensor, layer: int, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        several = [
            cache.update(keys[row : row + 1], values[row : row + 1], layer, *args, **kwargs)
            for row, cache in enumerate(self._caches)
        ]
        return _padded([each for each, _ in several]), _padded([each for _, each in several])

    def mask(self, layer: int, device: torch.device | str) -> Tensor | None:
        """Return the attention mask of the next token `(batch, 1, 1, keys)`, or `None` if texts are equally long."""
        lengths = torch.tensor([_length(cache, layer) + 1 for cache in self._caches], device=device)
        if bool((lengths == lengths[0]).all()):
            return None
        longest = int(lengths.max())
        return (torch.arange(longest, device=device) >= longest - lengths[:, None])[:, None, None]


def _length(cache: Any, layer: int) -> int:
    keys = cache.layers[layer].keys if layer < len(cache.layers) else None
    return 0 if keys is None or not keys.numel() else int(keys.shape[-2])


def _padded(several: Sequence[Tensor]) -> Tensor:
    first, longest = several[0], max(each.shape[-2] for each in several)
    if all(each.shape[-2] == longest for each in several):
        return torch.cat(list(several))
    made = first.new_zeros(len(several), *first.shape[1:-2], longest, first.shape[-1])
    for row, each in enumerate(several):
        made[row, ..., longest - each.shape[-2] :, :] = each[0]
    return made


MEASURE_EVERY = 16
"""Number of passes between two measurements of the size of a request's caches."""

MAX_REQUESTS = 1024
"""Maximum number of requests with caches. Beyond it, the caches of the least recently used one are freed."""

LEASE_SECONDS = 300.0
"""Seconds after the last message of a request until its caches are freed."""

CACHE_MEMORY_SHARE = 0.25
"""Maximum fraction of the memory of the machine or device for the caches of all requests."""

NewCache: TypeAlias = Callable[[str], Any]
"""Function that creates an empty cache from its class name, as encoded by `wire.encode`."""

SublayerPaths: TypeAlias = Mapping[Sublayer, str]


@dataclass(frozen=True, slots=True)
class NodeLayer:
    """A block on a node, a function that creates its caches, and the paths of its sublayers if they are needed."""

    block: nn.Module
    new_cache: NewCache
    sublayers: SublayerPaths | None = None


@dataclass(slots=True)
class _VisitState:
    cache: Any = None
    passes: int = 0
    tokens: int = 0
    call: int = -1


@dataclass(slots=True)
class _Request:
    visited: dict[RemoteVisit, _VisitState] = field(default_factory=dict)
    last: Reply | None = None
    heard: float = 0.0
    bytes: int = 0

    def measure(self) -> int:
        before, caches = self.bytes, {id(each.cache): each.cache for each in self.visited.values()}
        layers = [layer for cache in caches.values() for layer in getattr(cache, "layers", ())]
        tensors = (value for layer in layers for value in vars(layer).values() if isinstance(value, Tensor))
        self.bytes = sum(tensor.nbytes for tensor in tensors)
        return self.bytes - before

    def cache(self, visit: RemoteVisit, new_cache: NewCache, kind: str) -> Any:
        own = self.visited[visit]
        if own.cache is None:
            own.cache = new_cache(kind)
        return own.cache

    def forget(self, visits: Iterable[RemoteVisit]) -> None:
        for visit in visits:
            own = self.visited[visit]
            own.cache, own.passes, own.tokens = None, 0, 0


_Ready: TypeAlias = tuple[RunLayers, _Request]


class Node:
    """Holds blocks of one or more models, and the caches of requests. Not thread-safe."""

    def __init__(self, name: str, device: torch.device | str = "cpu", max_bytes: int | None = None) -> None:
        self.name = name
        self.device = torch.device(device)
        self.max_bytes = max_bytes or int(CACHE_MEMORY_SHARE * total_memory(self.device))
        self.bytes = 0
        self.process = secrets.token_hex(4)
        self._blocks: dict[RemoteLayer, NodeLayer] = {}
        self._requests: OrderedDict[str, _Request] = OrderedDict()
        self._batched: dict[object, bool] = {}

    @property
    def layers(self) -> tuple[RemoteLayer, ...]:
        return tuple(sorted(self._blocks))

    def add_layer(self, layer: RemoteLayer, held: NodeLayer) -> None:
        self._blocks[layer] = held

    def restart(self) -> None:
        self._requests.clear()
        self.bytes = 0
        self.process = secrets.token_hex(4)

    def handle(self, message: Message) -> Response:
        try:
            with torch.inference_mode():
                match message:
                    case RunLayers():
                        return self._handle_batch([message])[0]
                    case LoadLayers():
                        self._load(message)
                    case Release():
                        self._release(message.request)
        except Exception as error:  # any error of a block is reported to the router
            return Refused(self.name, f"{type(error).__name__}: {error}")
        return Done(self.name)

    def handle_all(self, messages: Sequence[Message]) -> Sequence[Response]:
        if len(messages) == 1:
            return [self.handle(messages[0])]
        answers: dict[int, Response] = {}
        for positions in group_calls(messages):
            several = [messages[position] for position in positions]
            calls = [each for each in several if isinstance(each, RunLayers)]
            responses = self._handle_batch(calls) if len(calls) > 1 else list(map(self.handle, several))
            answers.update(zip(positions, responses, strict=True))
        return [answers[position] for position in range(len(messages))]

    # -- calls -----------------------------------------------------------------------------------------------------

    def _begin(self, call: RunLayers) -> _Request | Reply | Refused:
        layers = [self._blocks.get(visit.layer) for visit in call.visits]
        if None in layers:
            absent = [visit.layer.name for visit in call.visits if visit.layer not in self._blocks]
            return Refused(self.name, f"does not hold layer {', '.join(absent)}", lacks_layers=True)
        request = self._find_request(call.request)
        visited = [request.visited.setdefault(visit, _VisitState()) for visit in call.visits]
        latest = max([each.call for each in visited])
        if call.number <= latest:
            if request.last is not None and request.last.number == call.number:
                return request.last  # a repeated call
            return Refused(self.name, f"received call {call.number} of this request after call {latest}")
        for each in visited:
            each.call = call.number
        first = call.given.index
        if not first:
            request.forget(call.visits)
        if any(each.passes != first for each in visited):
            counts = [(each.passes, visit.name) for each, visit in zip(visited, call.visits, strict=True)]
            wrong = ", ".join(f"layer {name} has run {count}" for count, name in counts if count != first)
            return Refused(self.name, f"received pass {first} without the passes before it ({wrong})")
        return request

    def _handle_batch(self, calls: Sequence[RunLayers]) -> Sequence[Response]:
        with torch.inference_mode():
            started = [self._begin(call) for call in calls]
            ready = [(call, each) for call, each in zip(calls, started, strict=True) if isinstance(each, _Request)]
            together = self._run_together if self._can_batch(ready) else self._run_apart
            answers = iter(together(ready))
        return [next(answers) if isinstance(each, _Request) else each for each in started]

    def _can_batch(self, ready: Sequence[_Ready]) -> bool:
        if len(ready) < 2:
            return False
        visits = ready[0][0].visits
        by_length = sorted(ready, key=lambda each: each[1].visited[visits[0]].tokens)
        shortest, longest = by_length[0], by_length[-1]
        tokens = [each.visited[visits[0]].tokens for _, each in (shortest, longest)]
        kind = visits, shortest[0].given.calls, tokens[0] == tokens[1]
        if kind not in self._batched:
            batch = self._try_batch([shortest, longest])
            alone = [*self._try_batch([shortest]), *self._try_batch([longest])]
            close = (agree(one, other, len(visits)) for one, other in zip(batch, alone, strict=False))
            self._batched[kind] = len(batch) == len(alone) == 2 and all(close)
        return self._batched[kind]

    def _try_batch(self, ready: Sequence[_Ready]) -> Sequence[Tensor]:
        visits = ready[0][0].visits
        try:
            copies = [_Request(deepcopy({visit: each.visited[visit] for visit in visits})) for _, each in ready]
            return self._run_blocks(copies, visits, [call.given for call, _ in ready])[0]
        except Exception:  # the block does not support batches
            return ()

    def _run_together(self, ready: Sequence[_Ready]) -> Sequence[Response]:
        visits, requests = ready[0][0].visits, [request for _, request in ready]
        try:
            states, seconds = self._run_blocks(requests, visits, [call.given for call, _ in ready])
        except Exception as error:
            for request in requests:
                request.forget(visits)
            return [Refused(self.name, f"{type(error).__name__}: {error}")] * len(ready)
        return [
            self._make_reply(call, request, state, seconds / len(ready))
            for (call, request), state in zip(ready, states, strict=True)
        ]

    def _run_apart(self, ready: Sequence[_Ready]) -> Sequence[Response]:
        return [answer for each in ready for answer in self._run_together([each])]

    def _make_reply(self, call: RunLayers, request: _Request, state: Tensor, seconds: float) -> Reply:
        index, tokens = call.given.index, state.shape[-2]
        for visit in call.visits:
            own = request.visited[visit]
            own.passes, own.tokens = index + 1, own.tokens + tokens
        reply = Reply(self.name, call.request, call.number, index, to_array(state), seconds, self.process)
        request.last = reply
        if index % MEASURE_EVERY == 0 and call.request in self._requests:
            self.bytes += request.measure()
        while self.bytes > self.max_bytes and len(self._requests) > 1:
            self._release(next(iter(self._requests)))
        return reply

    def _run_blocks(
        self, requests: Sequence[_Request], visits: Sequence[RemoteVisit], passes: Sequence[Pass]
    ) -> tuple[Sequence[Tensor], float]:
        calls = BlockCalls(passes, self.device)
        arguments = []
        for number, visit in enumerate(visits):
            held = self._blocks[visit.layer]
            caches = [partial(request.cache, visit, held.new_cache) for request in requests]
            args, kwargs, key = calls.build(number, visit.layer.number, caches)
            arguments.append((held, visit.sublayer, args, kwargs, key))
        state = stack_batch([to_tensor(given.state, self.device) for given in passes])
        started = time.perf_counter()
        for held, sublayer, args, kwargs, key in arguments:
            if isinstance(key, int):
                args[key] = state
            else:
                kwargs[key] = state
            if sublayer is None:
                state = returned_state(held.block(*args, **kwargs))
            else:
                with _use_sublayer(held, sublayer):
                    state = returned_state(held.block(*args, **kwargs))
        return torch.split(state, 1) if len(passes) > 1 else [state], time.perf_counter() - started

    def _find_request(self, name: str) -> _Request:
        request, now = self._requests.setdefault(name, _Request()), time.monotonic()
        request.heard = now
        self._requests.move_to_end(name)
        while len(self._requests) > MAX_REQUESTS or now - next(iter(self._requests.values())).heard > LEASE_SECONDS:
            self._release(next(iter(self._requests)))
        return request

    def _release(self, name: str) -> None:
        request = self._requests.pop(name, None)
        self.bytes -= request.bytes if request is not None else 0

    # -- weights --------------------------------------------------------------------------------------------------

    def _load(self, message: LoadLayers) -> None:
        blocks, config = build_blocks(message, self.device)
        new_cache = cache_factory(config)
        for slot, (number, block) in enumerate(zip(message.layers, blocks, strict=True)):
            sublayers: Any = dict(message.sublayers[slot]) if message.sublayers else None
            self.add_layer(RemoteLayer(number, message.source), NodeLayer(block, new_cache, sublayers))


def total_memory(device: torch.device) -> int:
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def cache_factory(config: Any) -> NewCache:
    """Return a function that creates caches for a configuration. It raises `ModelError` for unsupported classes."""

    def new_cache(kind: str) -> Any:
        module, _, name = kind.partition(":")
        made: Any = getattr(import_module(module), name) if module.partition(".")[0] == "transformers" else None
        if made is DynamicCache:
            return DynamicCache(config=config)
        if not (isinstance(made, type) and issubclass(made, DynamicCache)):
            raise ModelError(f"The KV cache must be a DynamicCache, got {kind}.")
        return made()

    return new_cache


def _use_sublayer(held: NodeLayer, sublayer: Sublayer) -> AbstractContextManager[None]:
    if held.sublayers is None:
        raise RuntimeError(f"received a call of {sublayer} without the paths of sublayers")
    return only(held.block, held.sublayers, sublayer)


def local_node(name: str, stack: Stack, layers: Sequence[RemoteLayer], *, sublayers: bool = False) -> Node:
    """Create a node in this process that shares the blocks of `stack`. If `sublayers`, it can run single sublayers."""
    node = Node(name, stack.device)
    new_cache = cache_factory(getattr(stack.model, "config", None))
    pairs = dict(enumerate(stack.branches().paths)) if sublayers else {}
    for layer in layers:
        block = stack.block(layer.number, layer.source or None)
        node.add_layer(layer, NodeLayer(block, new_cache, pairs.get(layer.number)))
    return node
