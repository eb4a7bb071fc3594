"""Messages between a router and its nodes, encoded as MessagePack because unpickling can run any code.

    RunLayers     run these layers on this hidden state   ->  Reply | Refused
    LoadLayers    load these layers with these weights    ->  Done | Refused
    Release       clear the caches of a request           ->  Done

The response can also be `Gone` or `Late`.
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
    """A tensor as bytes: torch dtype name (`float32`), shape, and row-major data."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes


@dataclass(frozen=True, slots=True, order=True)
class RemoteLayer:
    """A layer that a node holds: its number and the name of its model (`""` for the model that is served)."""

    number: int
    source: str = ""

    @property
    def name(self) -> str:
        """The layer in plan syntax: `12`, or `a:12` for a layer of another model."""
        return layer_name(self.number, None, self.source or None)


@dataclass(frozen=True, slots=True)
class RemoteVisit:
    """One layer evaluation of a plan: the layer, or only its `sublayer`, with its `slot` in the KV cache."""

    slot: int
    layer: RemoteLayer
    sublayer: Sublayer | None = None

    def __hash__(self) -> int:
        return self.slot  # cheap, since nodes look up visits many times per call

    @property
    def name(self) -> str:
        return layer_name(self.layer.number, self.sublayer, self.layer.source or None)


@dataclass(frozen=True, slots=True)
class Pass:
    """Input of a node in forward pass `index`. Pass 0 contains all tokens so far and clears the caches.

    `calls` holds the other arguments of each block as MessagePack. In it, `{"tensor": 3}` refers to `arrays[3]`, and
    `{"cache": "module:class"}` for the node's cache of that class (see `layerwise.swarm.wire`).
    """

    index: int
    state: Array
    arrays: tuple[Array, ...]
    calls: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class RunLayers:
    """Run the layer evaluations `visits` in order on the hidden state in `given`.

    The caches of these layers must contain all earlier passes and nothing else. `number` grows with every call, so that
    nodes can detect repeated and outdated ones.
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
    """The hidden state after call `number` in pass `index`.

    `seconds` is the compute time on the node, divided by the batch size; `process` identifies the node's process.
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
    """Load the blocks `layers` of a model, in addition to those already loaded.

    The node builds the blocks from `model_class` (`module:Class`) and `config` (JSON), and `path` is the module list
    that contains them. `weights` holds the tensors of each block by name, and `sublayers` the submodule paths of its
    sublayers.
    """

    source: str
    model_class: str
    config: str
    path: str
    layers: tuple[int, ...]
    weights: tuple[tuple[tuple[str, Array], ...], ...]
    sublayers: tuple[tuple[tuple[str, str], ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Release:
    """Free the caches of a request."""

    request: str


@dataclass(frozen=True, slots=True)
class Done:
    """A `LoadLayers` or `Release` message succeeded."""

    node: str


@dataclass(frozen=True, slots=True)
class Gone:
    """The node has failed or cannot be reached. It may have processed the message."""

    node: str
    reason: str


@dataclass(frozen=True, slots=True)
class Late:
    """The node has not answered within `seconds`. It may still process the message."""

    node: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Refused:
    """The node refused the message or its reply was invalid. `lacks_layers` is set if it does not hold all layers."""

    node: str
    reason: str
    lacks_layers: bool = False


Message: TypeAlias = RunLayers | LoadLayers | Release
Failure: TypeAlias = Gone | Late | Refused
Response: TypeAlias = Reply | Done | Failure


class Transport(Protocol):
    """Delivers each message to its node at most once. A call to a failed node returns `Gone`."""

    @property
    def is_over(self) -> bool: ...

    async def call(self, node: str, messages: Sequence[Message]) -> Sequence[Response]: ...

    async def close(self) -> None: ...


_ENCODER: Final = msgspec.msgpack.Encoder()

_NAMED: Final = msgspec.msgpack.Decoder(list[tuple[str, msgspec.Raw]])

_DECODERS: Final[Mapping[str, msgspec.msgpack.Decoder[Any]]] = {
    kind.__name__: msgspec.msgpack.Decoder(kind)
    for kind in (RunLayers, LoadLayers, Release, Reply, Done, Gone, Late, Refused)
}


def pack(messages: Sequence[Message | Response]) -> bytes:
    r"""Encode the messages of one call as bytes, which Ray sends without pickling.

    >>> pack([Release("request-1")])
    b'\x91\x92\xa7Release\x81\xa7request\xa9request-1'
    """
    return _ENCODER.encode([(type(message).__name__, message) for message in messages])


def unpack(packed: bytes) -> list[Any]:
    """Decode messages. Raises `SwarmError` for invalid bytes.

    >>> unpack(pack([Release("request-1")]))
    [Release(request='request-1')]
    """
    try:
        return [_decoder(name).decode(fields) for name, fields in _NAMED.decode(packed)]
    except msgspec.MsgspecError as error:
        raise SwarmError(
            f"Received an invalid message ({error}). Install the same version of layerwise on all machines."
        ) from error


def _decoder(name: str) -> msgspec.msgpack.Decoder[Any]:
    decoder = _DECODERS.get(name)
    if decoder is None:
        raise SwarmError(
            f"Received an unknown message {name[:60]!r}. Install the same version of layerwise on all machines."
        )
    return decoder
