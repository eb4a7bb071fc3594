"""Messages between a server and its router process, sent over a socket pair as 4 bytes of length and MessagePack."""

from __future__ import annotations

from asyncio import IncompleteReadError, StreamReader
from collections.abc import AsyncIterator
from typing import TypeAlias, TypeVar

import msgspec

from layerwise.swarm.answer import Answer, Decoding, Overview, PromptScores, TokenSpan

CHANNEL = "LAYERWISE_SERVER"
"""Environment variable that tells a router process the file descriptor of its socket to the server."""


class Generate(msgspec.Struct, tag=True, frozen=True):
    """Generate the answer to a prompt. `made` are the tokens of the answer that were already generated."""

    request: str
    ids: tuple[int, ...]
    decoding: Decoding
    made: tuple[int, ...] = ()


class ScorePrompt(msgspec.Struct, tag=True, frozen=True):
    request: str
    ids: tuple[int, ...]


class Classify(msgspec.Struct, tag=True, frozen=True):
    """Classify an RGB image of `size` (width, height), with three bytes per pixel."""

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
    """The next token of an answer. `spans` describes all tokens so far; None if it has not changed."""

    request: str
    token: int
    spans: tuple[TokenSpan, ...] | None = None


class AnswerReport(msgspec.Struct, tag=True, frozen=True):
    """The end of a request. `probabilities` are the class probabilities of an image."""

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
    """Error of a request, or of the start of the router if `request` is empty.

    `kind` is the class name of a `LayerwiseError`, or empty for any other error.
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
