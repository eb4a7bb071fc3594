"""Messages between a server and its router process, on a pair of sockets: 4 bytes of length, then MessagePack."""

from __future__ import annotations

from asyncio import IncompleteReadError, StreamReader
from collections.abc import AsyncIterator
from typing import TypeAlias, TypeVar

import msgspec

from layerwise.swarm.answer import Answer, Decoding, Overview, PromptScores, TokenSpan

CHANNEL = "LAYERWISE_SERVER"
"""The environment variable that names the socket to the server, in the process of a router."""


class Generate(msgspec.Struct, tag=True, frozen=True):
    """Continue a prompt, of whose answer some tokens are `made` already."""

    request: str
    ids: tuple[int, ...]
    decoding: Decoding
    made: tuple[int, ...] = ()


class ScorePrompt(msgspec.Struct, tag=True, frozen=True):
    request: str
    ids: tuple[int, ...]


class Classify(msgspec.Struct, tag=True, frozen=True):
    """Classify an image: its `size` in pixels, and three bytes for each."""

    request: str
    size: tuple[int, int]
    rgb: bytes


class CheckReady(msgspec.Struct, tag=True, frozen=True):
    request: str


class Cancel(msgspec.Struct, tag=True, frozen=True):
    request: str


class Opened(msgspec.Struct, tag=True, frozen=True):
    """The nodes have their layers. What a server has to know of the model."""

    name: str
    reads_text: bool
    max_length: int | None
    labels: tuple[str, ...]


class Token(msgspec.Struct, tag=True, frozen=True):
    """The next token of an answer; `spans` say of all so far which plans wrote them, where that is another thing."""

    request: str
    token: int
    spans: tuple[TokenSpan, ...] | None = None


class Answered(msgspec.Struct, tag=True, frozen=True):
    """The end of a request; `probabilities` are those of an image."""

    request: str
    answer: Answer
    probabilities: tuple[float, ...] = ()


class Scored(msgspec.Struct, tag=True, frozen=True):
    request: str
    scores: PromptScores
    answer: Answer


class ReadyReport(msgspec.Struct, tag=True, frozen=True):
    request: str
    ready: bool
    reason: str


class Failed(msgspec.Struct, tag=True, frozen=True):
    """A request ended with an error, or with no name: the router could not begin. `kind` is the class of a
    `LayerwiseError`, and empty for any other error."""

    request: str
    kind: str
    message: str


class Seen(msgspec.Struct, tag=True, frozen=True):
    overview: Overview


Order: TypeAlias = Generate | ScorePrompt | Classify | CheckReady | Cancel
Report: TypeAlias = Opened | Token | Answered | Scored | ReadyReport | Failed | Seen

ORDERS: msgspec.msgpack.Decoder[Order] = msgspec.msgpack.Decoder(Order)
REPORTS: msgspec.msgpack.Decoder[Report] = msgspec.msgpack.Decoder(Report)
_ENCODER = msgspec.msgpack.Encoder()

M = TypeVar("M")


def frame(message: Order | Report) -> bytes:
    """The bytes of a message.

    >>> frame(Cancel("a"))[:4]
    b'\\x00\\x00\\x00\\x17'
    """
    content = _ENCODER.encode(message)
    return len(content).to_bytes(4, "big") + content


async def frames(reader: StreamReader, decoder: msgspec.msgpack.Decoder[M]) -> AsyncIterator[M]:
    try:
        while True:
            size = int.from_bytes(await reader.readexactly(4), "big")
            yield decoder.decode(await reader.readexactly(size))
    except (IncompleteReadError, OSError):
        return
