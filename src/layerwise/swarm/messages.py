"""Messages between a router and its nodes: frozen values of numbers, text and bytes.

    Hop           run these visits on this state                ->  Reply | Refused
    LoadLayers    keep these layers, with these weights         ->  Done | Refused
    Release       forget what a request left in the caches      ->  Done

A call can also end as `Gone` or `Late`. Messages travel as MessagePack, since unpickling can run any code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final, Protocol, TypeAlias

import msgspec

from layerwise.errors import SwarmError
from layerwise.plan.checks import Sublayer, layer_name


@dataclass(frozen=True, slots=True)
class Array:
    """A tensor: its dtype as torch names it (`float32`), its shape, and its numbers, row by row."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes


@dataclass(frozen=True, slots=True, order=True)
class RemoteLayer:
    """A layer as nodes hold it: its number, and the name of the model it is of (`""` for the model itself)."""

    number: int
    source: str = ""

    @property
    def name(self) -> str:
        """As a plan's text has it: `12`, or `a:12` for a layer of another model."""
        return layer_name(self.number, None, self.source or None)


@dataclass(frozen=True, slots=True)
class RemoteVisit:
    """One layer evaluation of a request's plan: the cache `slot`, and the layer (or its `sublayer`) that runs there."""

    slot: int
    layer: RemoteLayer
    sublayer: Sublayer | None = None

    def __hash__(self) -> int:
        return self.slot  # in few words: nodes look visits up many times a hop

    @property
    def name(self) -> str:
        return layer_name(self.layer.number, self.sublayer, self.layer.source or None)


@dataclass(frozen=True, slots=True)
class Pass:
    """A node's part of forward pass `index`; pass 0 has all tokens so far, and clears the caches of its visits.

    `calls` are the other arguments of the blocks, one call per visit, as MessagePack: `{"tensor": 3}`
    is `arrays[3]` and `{"cache": "module:class"}` the node's cache of that class (see `layerwise.swarm.wire`).
    """

    index: int
    state: Array
    arrays: tuple[Array, ...]
    calls: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Hop:
    """Run `visits` in order on the state of the pass `given`; their caches must hold exactly the earlier passes.

    `number` counts the hops of a request, so that a node drops repeated and outdated ones.
    """

    request: str
    number: int
    visits: tuple[RemoteVisit, ...]
    given: Pass

    @property
    def work(self) -> int:
        return len(self.visits) * prod(self.given.state.shape[:-1])


@dataclass(frozen=True, slots=True)
class Reply:
    """The state after the visits of hop `number` in the pass `index`.

    `seconds` is the compute time on the node, shared among batched hops; `process` identifies the process of the node.
    """

    node: str
    request: str
    number: int
    index: int
    state: Array
    seconds: float
    process: str = ""


@dataclass(frozen=True, slots=True)
class LoadLayers:
    """Keep the blocks `layers` of a model, in addition to those that are held.

    The node builds blocks without weights from `model_class` (a dotted name) and `config` (JSON); `path` is the list of
    blocks. `weights` are the tensors of each block by name, `halves` the submodules of each layer's two branches.
    """

    source: str
    model_class: str
    config: str
    path: str
    layers: tuple[int, ...]
    weights: tuple[tuple[tuple[str, Array], ...], ...]
    halves: tuple[tuple[tuple[str, str], ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Release:
    """Forget everything about a request: it has ended, or goes on elsewhere."""

    request: str


@dataclass(frozen=True, slots=True)
class Done:
    """A message other than a hop was carried out."""

    node: str


@dataclass(frozen=True, slots=True)
class Gone:
    """The node is dead or cannot be reached. Whether it ran the message is not known."""

    node: str
    reason: str


@dataclass(frozen=True, slots=True)
class Late:
    """The node has not answered within `seconds`. It may yet run the message, or have run it."""

    node: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Refused:
    """The node cannot do what it was asked, or its answer is not one to it; `lacks_layers`: it does not hold some."""

    node: str
    reason: str
    lacks_layers: bool = False


Message: TypeAlias = Hop | LoadLayers | Release
Failure: TypeAlias = Gone | Late | Refused
Response: TypeAlias = Reply | Done | Failure


class Transport(Protocol):
    """Carries messages to nodes, at most once each. A call to a failed node returns `Gone`; callers bound the time."""

    @property
    def is_over(self) -> bool: ...

    async def call(self, node: str, messages: Sequence[Message]) -> Sequence[Response]: ...

    async def close(self) -> None: ...


_ENCODER: Final = msgspec.msgpack.Encoder()

_NAMED: Final = msgspec.msgpack.Decoder(list[tuple[str, msgspec.Raw]])

_DECODERS: Final[Mapping[str, msgspec.msgpack.Decoder[Any]]] = {
    kind.__name__: msgspec.msgpack.Decoder(kind)
    for kind in (Hop, LoadLayers, Release, Reply, Done, Gone, Late, Refused)
}


def pack(messages: Sequence[Message | Response]) -> bytes:
    """The bytes of messages, all of one call: Ray sends bytes as they are, and pickles a list of them.

    >>> pack([Release("request-1")])
    b'\\x91\\x92\\xa7Release\\x81\\xa7request\\xa9request-1'
    """
    return _ENCODER.encode([(type(message).__name__, message) for message in messages])


def unpack(packed: bytes) -> list[Any]:
    """The messages of such bytes. Raises `SwarmError` for bytes that are no messages of this layerwise.

    >>> unpack(pack([Release("request-1")]))
    [Release(request='request-1')]
    """
    try:
        return [_decoder(name).decode(fields) for name, fields in _NAMED.decode(packed)]
    except msgspec.MsgspecError as error:
        raise SwarmError(f"what came is no message of this layerwise: {error}") from error


def _decoder(name: str) -> msgspec.msgpack.Decoder[Any]:
    decoder = _DECODERS.get(name)
    if decoder is None:
        raise SwarmError(f"{name[:60]!r} is no message of this layerwise")
    return decoder
