"""Messages between a server and its router process, on a pair of sockets: 4 bytes of length, then MessagePack."""

from __future__ import annotations

from asyncio import IncompleteReadError, StreamReader
from collections.abc import AsyncIterator
from typing import TypeAlias, TypeVar

import msgspec

from layerwise.swarm.answer import Answer, Decoding, Overview, PromptScores, TokenSpan

CHANNEL = "LAYERWISE_SERVER"
"""Environment variable with the file descriptor of the socket to the server, in a router process."""


class Generate(msgspec.Struct, tag=True, frozen=True):
    """Continue a prompt after the tokens of its answer that are already `made`."""

    request: str
    ids: tuple[int, ...]
    decoding: Decoding
    made: tuple[int, ...] = ()


class ScorePrompt(msgspec.Struct, tag=True, frozen=True):
    request: str
    ids: tuple[int, ...]


class Classify(msgspec.Struct, tag=True, frozen=True):
    """Classify an image of `size` pixels, with three bytes each."""

    request: str
    size: tuple[int, int]
    rgb: bytes


class CheckReady(msgspec.Struct, tag=True, frozen=True):
    request: str


class Cancel(msgspec.Struct, tag=True, frozen=True):
    request: str


class ModelReport(msgspec.Struct, tag=True, frozen=True):
    """Description of the model, sent when the nodes have loaded their layers."""

    name: str
    reads_text: bool
    max_length: int | None
    labels: tuple[str, ...]


class TokenReport(msgspec.Struct, tag=True, frozen=True):
    """The next token of an answer; `spans` are those of all tokens so far, if they have changed."""

    request: str
    token: int
    spans: tuple[TokenSpan, ...] | None = None


class AnswerReport(msgspec.Struct, tag=True, frozen=True):
    """The end of a request; `probabilities` are the class probabilities of an image."""

    request: str
    answer: Answer
    probabilities: tuple[float, ...] = ()


class ScoreReport(msgspec.Struct, tag=True, frozen=True):
    request: str
    scores: PromptScores
    answer: Answer


class ReadyReport(msgspec.Struct, tag=True, frozen=True):
    request: str
    ready: bool
    reason: str


class FailureReport(msgspec.Struct, tag=True, frozen=True):
    """Error of a request, or of the router's start if `request` is empty.

    `kind` is the class of a `LayerwiseError`, and empty for any other error.
    """

    request: str
    kind: str
    message: str


class OverviewReport(msgspec.Struct, tag=True, frozen=True):
    overview: Overview


Order: TypeAlias = Generate | ScorePrompt | Classify | CheckReady | Cancel
Report: TypeAlias = (
    ModelReport | TokenReport | AnswerReport | ScoreReport | ReadyReport | FailureReport | OverviewReport
)

ORDERS: msgspec.msgpack.Decoder[Order] = msgspec.msgpack.Decoder(Order)
REPORTS: msgspec.msgpack.Decoder[Report] = msgspec.msgpack.Decoder(Report)
_ENCODER = msgspec.msgpack.Encoder()

M = TypeVar("M")


def encode_frame(message: Order | Report) -> bytes:
    r"""Encode a message with its length.

    >>> encode_frame(Cancel("a"))[:4]
    b'\x00\x00\x00\x17'
    """
    content = _ENCODER.encode(message)
    return len(content).to_bytes(4, "big") + content


async def read_frames(reader: StreamReader, decoder: msgspec.msgpack.Decoder[M]) -> AsyncIterator[M]:
    try:
        while True:
            size = int.from_bytes(await reader.readexactly(4), "big")
            yield decoder.decode(await reader.readexactly(size))
    except (IncompleteReadError, OSError):
        return
