"""A node: some layers of a model, and the caches of each request.

It answers every message with a value, and counts the passes of each request through each visit, so that skipped and
repeated hops do no harm.
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
    Hop,
    LoadLayers,
    Message,
    Pass,
    Refused,
    Release,
    RemoteLayer,
    RemoteVisit,
    Reply,
    Response,
)
from layerwise.swarm.nodes.batch import Calls, batched, batches
from layerwise.swarm.nodes.blocks import built_blocks
from layerwise.swarm.trust import agree
from layerwise.swarm.wire import to_array, to_tensor

MEASURED_EVERY = 16
"""Passes between two looks at how many bytes the caches of a request take."""

MOST_REQUESTS = 1024
"""Requests that a node keeps caches of. The one that has waited longest is forgotten, and starts over later."""

LEASE_SECONDS = 300.0
"""For which a node keeps what a request left that it hears nothing more of."""

SHARE_OF_MEMORY = 0.25
"""The share of a machine's memory, or a device's, that the caches of all requests on a node may take."""

NewCache: TypeAlias = Callable[[str], Any]
"""Makes an empty cache of the class of this name, as `wire.encode` writes it."""

Halves: TypeAlias = Mapping[Sublayer, str]


@dataclass(frozen=True, slots=True)
class HeldLayer:
    """A block on a node, how to make an empty cache for it, and the paths of its two branches if they are known."""

    block: nn.Module
    new_cache: NewCache
    halves: Halves | None = None


@dataclass(slots=True)
class _Visited:
    """The cache, passes and tokens of one visit of a request, and the last hop that ran it."""

    cache: Any = None
    passes: int = 0
    tokens: int = 0
    hop: int = -1


@dataclass(slots=True)
class _Request:
    visited: dict[RemoteVisit, _Visited] = field(default_factory=dict)
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


_Ready: TypeAlias = tuple[Hop, _Request]


class Node:
    """Blocks of one or several models, and the state of requests. Not for several threads at a time."""

    def __init__(self, name: str, device: torch.device | str = "cpu", most_bytes: int | None = None) -> None:
        self.name = name
        self.device = torch.device(device)
        self.most_bytes = most_bytes or int(SHARE_OF_MEMORY * memory_of(self.device))
        self.bytes = 0
        self.process = secrets.token_hex(4)
        self._held: dict[RemoteLayer, HeldLayer] = {}
        self._requests: OrderedDict[str, _Request] = OrderedDict()
        self._batched: dict[object, bool] = {}

    @property
    def layers(self) -> tuple[RemoteLayer, ...]:
        return tuple(sorted(self._held))

    def keep(self, layer: RemoteLayer, held: HeldLayer) -> None:
        """Hold a block that is in this process already; `handle(LoadLayers(...))` is for one that comes as bytes."""
        self._held[layer] = held

    def restart(self) -> None:
        self._requests.clear()
        self.bytes = 0
        self.process = secrets.token_hex(4)

    def handle(self, message: Message) -> Response:
        try:
            with torch.inference_mode():
                match message:
                    case Hop():
                        return self._handle_batch([message])[0]
                    case LoadLayers():
                        self._hold(message)
                    case Release():
                        self._release(message.request)
        except Exception as error:  # a block may fail in any way, and the router must hear of it
            return Refused(self.name, f"{type(error).__name__}: {error}")
        return Done(self.name)

    def handle_all(self, messages: Sequence[Message]) -> Sequence[Response]:
        if len(messages) == 1:
            return [self.handle(messages[0])]
        answers: dict[int, Response] = {}
        for positions in batches(messages):
            several = [messages[position] for position in positions]
            hops = [each for each in several if isinstance(each, Hop)]
            responses = self._handle_batch(hops) if len(hops) > 1 else list(map(self.handle, several))
            answers.update(zip(positions, responses, strict=True))
        return [answers[position] for position in range(len(messages))]

    # -- hops -----------------------------------------------------------------------------------------------------

    def _begun(self, hop: Hop) -> _Request | Reply | Refused:
        layers = [self._held.get(visit.layer) for visit in hop.visits]
        if None in layers:
            absent = [visit.layer.name for visit in hop.visits if visit.layer not in self._held]
            return Refused(self.name, f"does not hold layer {', '.join(absent)}", lacks_layers=True)
        request = self._request(hop.request)
        visited = [request.visited.setdefault(visit, _Visited()) for visit in hop.visits]
        latest = max([each.hop for each in visited])
        if hop.number <= latest:
            if request.last is not None and request.last.number == hop.number:
                return request.last  # a hop that came twice
            return Refused(self.name, f"has run hop {latest} of this request; hop {hop.number} came after it")
        for each in visited:
            each.hop = hop.number
        first = hop.given.index
        if not first:
            request.forget(hop.visits)
        if any(each.passes != first for each in visited):
            counts = [(each.passes, visit.name) for each, visit in zip(visited, hop.visits, strict=True)]
            wrong = ", ".join(f"{count} of {name}" for count, name in counts if count != first)
            return Refused(self.name, f"holds {wrong} passes and was sent pass {first}: send the passes before it")
        return request

    def _handle_batch(self, hops: Sequence[Hop]) -> Sequence[Response]:
        with torch.inference_mode():
            begun = [self._begun(hop) for hop in hops]
            ready = [(hop, each) for hop, each in zip(hops, begun, strict=True) if isinstance(each, _Request)]
            together = self._together if self._arrive_alike(ready) else self._apart
            answers = iter(together(ready))
        return [next(answers) if isinstance(each, _Request) else each for each in begun]

    def _arrive_alike(self, ready: Sequence[_Ready]) -> bool:
        if len(ready) < 2:
            return False
        visits = ready[0][0].visits
        by_length = sorted(ready, key=lambda each: each[1].visited[visits[0]].tokens)
        shortest, longest = by_length[0], by_length[-1]
        tokens = [each.visited[visits[0]].tokens for _, each in (shortest, longest)]
        kind = visits, shortest[0].given.calls, tokens[0] == tokens[1]
        if kind not in self._batched:
            batch = self._tried([shortest, longest])
            alone = [*self._tried([shortest]), *self._tried([longest])]
            close = (agree(one, other, len(visits)) for one, other in zip(batch, alone, strict=False))
            self._batched[kind] = len(batch) == len(alone) == 2 and all(close)
        return self._batched[kind]

    def _tried(self, ready: Sequence[_Ready]) -> Sequence[Tensor]:
        visits = ready[0][0].visits
        try:
            copies = [_Request(deepcopy({visit: each.visited[visit] for visit in visits})) for _, each in ready]
            return self._pass(copies, visits, [hop.given for hop, _ in ready])[0]
        except Exception:  # a block may fail in any way that is not used to batches
            return ()

    def _together(self, ready: Sequence[_Ready]) -> Sequence[Response]:
        visits, requests = ready[0][0].visits, [request for _, request in ready]
        try:
            states, seconds = self._pass(requests, visits, [hop.given for hop, _ in ready])
        except Exception as error:
            for request in requests:
                request.forget(visits)
            return [Refused(self.name, f"{type(error).__name__}: {error}")] * len(ready)
        return [
            self._reply(hop, request, state, seconds / len(ready))
            for (hop, request), state in zip(ready, states, strict=True)
        ]

    def _apart(self, ready: Sequence[_Ready]) -> Sequence[Response]:
        return [answer for each in ready for answer in self._together([each])]

    def _reply(self, hop: Hop, request: _Request, state: Tensor, seconds: float) -> Reply:
        index, tokens = hop.given.index, state.shape[-2]
        for visit in hop.visits:
            own = request.visited[visit]
            own.passes, own.tokens = index + 1, own.tokens + tokens
        reply = Reply(self.name, hop.request, hop.number, index, to_array(state), seconds, self.process)
        request.last = reply
        if index % MEASURED_EVERY == 0 and hop.request in self._requests:
            self.bytes += request.measure()
        while self.bytes > self.most_bytes and len(self._requests) > 1:
            self._release(next(iter(self._requests)))
        return reply

    def _pass(
        self, requests: Sequence[_Request], visits: Sequence[RemoteVisit], passes: Sequence[Pass]
    ) -> tuple[Sequence[Tensor], float]:
        calls = Calls(passes, self.device)
        prepared = []
        for number, visit in enumerate(visits):
            held = self._held[visit.layer]
            caches = [partial(request.cache, visit, held.new_cache) for request in requests]
            args, kwargs, key = calls.of(number, visit.layer.number, caches)
            prepared.append((held, visit.sublayer, args, kwargs, key))
        state = batched([to_tensor(given.state, self.device) for given in passes])
        started = time.perf_counter()
        for held, sublayer, args, kwargs, key in prepared:
            if isinstance(key, int):
                args[key] = state
            else:
                kwargs[key] = state
            if sublayer is None:
                state = returned_state(held.block(*args, **kwargs))
            else:
                with _half(held, sublayer):
                    state = returned_state(held.block(*args, **kwargs))
        return torch.split(state, 1) if len(passes) > 1 else [state], time.perf_counter() - started

    def _request(self, name: str) -> _Request:
        request, now = self._requests.setdefault(name, _Request()), time.monotonic()
        request.heard = now
        self._requests.move_to_end(name)
        while len(self._requests) > MOST_REQUESTS or now - next(iter(self._requests.values())).heard > LEASE_SECONDS:
            self._release(next(iter(self._requests)))
        return request

    def _release(self, name: str) -> None:
        request = self._requests.pop(name, None)
        self.bytes -= request.bytes if request is not None else 0

    # -- weights --------------------------------------------------------------------------------------------------

    def _hold(self, message: LoadLayers) -> None:
        blocks, config = built_blocks(message, self.device)
        new_cache = cache_factory(config)
        for slot, (number, block) in enumerate(zip(message.layers, blocks, strict=True)):
            halves: Any = dict(message.halves[slot]) if message.halves else None
            self.keep(RemoteLayer(number, message.source), HeldLayer(block, new_cache, halves))


def memory_of(device: torch.device) -> int:
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def cache_factory(config: Any) -> NewCache:
    """Return how to make the caches of a model with this configuration. Raises `ModelError` for other cache classes."""

    def new_cache(kind: str) -> Any:
        module, _, name = kind.partition(":")
        made: Any = getattr(import_module(module), name) if module.partition(".")[0] == "transformers" else None
        if made is DynamicCache:
            return DynamicCache(config=config)
        if not (isinstance(made, type) and issubclass(made, DynamicCache)):
            raise ModelError(f"a block is called with a {kind}; nodes make caches that grow (DynamicCache)")
        return made()

    return new_cache


def _half(held: HeldLayer, sublayer: Sublayer) -> AbstractContextManager[None]:
    if held.halves is None:
        raise RuntimeError(f"was not told the halves of the layer that it is asked for {sublayer} of")
    return only(held.block, held.halves, sublayer)


def local_node(name: str, stack: Stack, layers: Sequence[RemoteLayer], *, halves: bool = False) -> Node:
    """A node in this process that shares the blocks of `stack`; with `halves` it can run one branch of them."""
    node = Node(name, stack.device)
    new_cache = cache_factory(getattr(stack.model, "config", None))
    pairs = dict(enumerate(stack.branches().paths)) if halves else {}
    for layer in layers:
        block = stack.block(layer.number, layer.source or None)
        node.keep(layer, HeldLayer(block, new_cache, pairs.get(layer.number)))
    return node
