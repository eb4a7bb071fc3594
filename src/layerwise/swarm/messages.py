"""What a router and a node say to each other: frozen values that hold numbers, text and bytes, and no objects.

    Hop           run these visits on this state                ->  Reply | Refused
    LoadLayers    keep these layers, with these weights         ->  Done | Refused
    Release       forget what a request left in the caches      ->  Done

A call can also end in ways that the node does not choose: `Gone`, `Late` or `Corrupt`. A message travels as the name of
its class and its fields, in MessagePack: Ray would pickle anything but bytes, and unpickling runs whatever it is sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final, Protocol, TypeAlias

import msgspec

from layerwise.errors import SwarmError
from layerwise.plan.sublayer import Sublayer, named


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
        return named(self.number, None, self.source or None)


@dataclass(frozen=True, slots=True)
class RemoteVisit:
    """One layer evaluation of a request's plan: the `slot` in the plan, and the layer that runs there.

    A layer that a plan visits twice owns two cache slots, one a place. `sublayer` names the half of the layer that
    runs, if not all of it does.
    """

    slot: int
    layer: RemoteLayer
    sublayer: Sublayer | None = None

    def __hash__(self) -> int:
        return self.slot  # in few words: nodes look visits up many times a hop

    @property
    def name(self) -> str:
        """As a plan's text has it."""
        return named(self.layer.number, self.sublayer, self.layer.source or None)


@dataclass(frozen=True, slots=True)
class Arguments:
    """What the blocks are called with beside the state: tensors, and for every layer how they make up its call.

    Layer `layers[n]` is called as `calls[forms[n]]` says: MessagePack in which `{"tensor": 3}` stands for `arrays[3]`
    and `{"cache": "module:class"}` for the node's own cache of that class (see `layerwise.swarm.wire`). Layers that are
    called alike share one. An array that no call of these layers needs is `None`.
    """

    arrays: tuple[Array | None, ...]
    layers: tuple[int, ...]
    forms: tuple[int, ...]
    calls: tuple[bytes, ...]

    @property
    def nbytes(self) -> int:
        """What it holds."""
        return sum(len(array.data) for array in self.arrays if array is not None) + sum(map(len, self.calls))


@dataclass(frozen=True, slots=True)
class Pass:
    """The part of a forward pass that a node is to run: the state that enters, and the arguments of the blocks.

    `index` numbers the passes of a request: 0 reads the prompt, each later one a token. The state of a replay holds
    the tokens of all passes up to this one.
    """

    index: int
    state: Array
    arguments: Arguments


@dataclass(frozen=True, slots=True)
class Hop:
    """Run `visits` one after another on the state of the pass `given`.

    With `fresh` the node first forgets what it knows of the visits, as at the beginning of a request, or where it is
    given at once what another node did in several passes before; otherwise its caches must hold exactly the passes
    before this one. `number` counts the hops of a request, so that a node drops one that comes twice, or after a later
    one.
    """

    request: str
    number: int
    visits: tuple[RemoteVisit, ...]
    given: Pass
    fresh: bool = False

    @property
    def work(self) -> int:
        """Layer evaluations times the tokens that each runs on."""
        return len(self.visits) * prod(self.given.state.shape[:-1])


@dataclass(frozen=True, slots=True)
class Reply:
    """The state that the visits of hop `number` arrived at in the pass `index`.

    `seconds` is the time that the layers took, on the node's clock, without what carried the message; of hops that
    ran together each has its share. `process` names the process that answers: one that is started under the name of
    another has a new one.
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
    """Keep the blocks `layers` of a model, beside what is held already.

    `model_class` is the dotted name of its class and `config` its configuration as JSON: from both the node builds
    blocks without weights. `path` is the list of blocks in the model. `weights` are the parameters and buffers of each
    block, by their name inside it. `halves` are, for each layer, the submodules whose outputs its two branches add, if
    plans halve it.
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
    """The node answered that it cannot do what it was asked, and why; `lacks_layers`: it does not hold some of them."""

    node: str
    reason: str
    lacks_layers: bool = False


@dataclass(frozen=True, slots=True)
class Corrupt:
    """The answer is not one that the node can have meant: other bytes, another request, numbers that are not finite."""

    node: str
    reason: str


Message: TypeAlias = Hop | LoadLayers | Release
Failure: TypeAlias = Gone | Late | Refused | Corrupt
Response: TypeAlias = Reply | Done | Failure


class Transport(Protocol):
    """Carries messages to nodes, at most once each: it never sends a message again by itself.

    The way a call ends is a value: a node that has died is `Gone`, and nothing is raised. A call that takes too long
    is ended by the caller, which then speaks of `Late`.
    """

    @property
    def is_over(self) -> bool:
        """Whether no node will ever answer again, since what started them has ended."""
        ...

    async def call(self, node: str, messages: Sequence[Message]) -> Sequence[Response]:
        """What the node answers to each of the messages, or how the call failed. It may run hops together."""
        ...

    async def close(self) -> None:
        """Stop every node that this transport started."""
        ...


_ENCODER: Final = msgspec.msgpack.Encoder()

_NAMED: Final = msgspec.msgpack.Decoder(list[tuple[str, msgspec.Raw]])

_DECODERS: Final[Mapping[str, msgspec.msgpack.Decoder[Any]]] = {
    kind.__name__: msgspec.msgpack.Decoder(kind)
    for kind in (Hop, LoadLayers, Release, Reply, Done, Gone, Late, Refused, Corrupt)
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
