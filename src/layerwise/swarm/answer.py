"""What a swarm is asked and what it answers: how tokens are chosen, the answer, and how the swarm is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from layerwise.errors import SwarmError

Basis: TypeAlias = Literal["complete", "measured", "unknown"]
"""Where an expected cost comes from: nothing is missing, this very set was measured, or nobody knows."""

Finish: TypeAlias = Literal["stop", "length"]
"""Why an answer ends: the model said so or a stop text was reached, or it is as long as was asked for."""

NodeState: TypeAlias = Literal["live", "suspected", "gone", "quarantined"]
"""A node computes, however slowly; has not shown that it does; is dead; or gave an answer that others contradict."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What missing layers are expected to cost, in nats per token above the whole model, with an interval of 95 %."""

    nats: float | None
    low: float | None
    high: float | None
    basis: Basis


COMPLETE = Expected(0.0, 0.0, 0.0, "complete")
UNKNOWN = Expected(None, None, None, "unknown")


@dataclass(frozen=True, slots=True)
class TokenSpan:
    """The new tokens `start` to `stop - 1` of an answer, which were computed under the same conditions.

    `plan` is the text of the plan that computed them, `missing` the requested layers that it lacks, and `expected` the
    cost of that. `earlier` are layers missing for earlier tokens, `doubted` the nodes later found to compute wrongly.
    """

    start: int
    stop: int
    plan: str
    missing: tuple[int, ...] = ()
    expected: Expected = COMPLETE
    earlier: tuple[int, ...] = ()
    doubted: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        return self.expected.basis == "complete" and not self.earlier and not self.doubted


def continued(before: Sequence[TokenSpan], at: int, after: Sequence[TokenSpan]) -> tuple[TokenSpan, ...]:
    made = [replace(span, stop=min(span.stop, at)) for span in before if span.start < at]
    made[-1:] = [replace(span, stop=at) for span in made[-1:]]
    lacked = {layer for span in made for layer in (*span.missing, *span.earlier)}
    doubted = {node for span in made for node in span.doubted}
    for span in after:
        earlier = tuple(sorted({*span.earlier, *lacked} - set(span.missing)))
        own = replace(span, start=span.start + at, stop=span.stop + at, earlier=earlier)
        own = replace(own, doubted=tuple(sorted({*span.doubted, *doubted})))
        if made and replace(made[-1], start=own.start, stop=own.stop) == own:
            made[-1] = replace(made[-1], stop=own.stop)
        else:
            made.append(own)
    return tuple(made)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a request was answered with, and by which layers: the `spans` cover all tokens."""

    request: str
    tokens: tuple[int, ...]
    finish: Finish
    spans: tuple[TokenSpan, ...]

    @property
    def plan(self) -> str:
        """The text of the plan that ran last."""
        return self.spans[-1].plan

    @property
    def from_token(self) -> int:
        """The number of new tokens that were there when the last span began."""
        return self.spans[-1].start

    @property
    def missing(self) -> tuple[int, ...]:
        """The layers that any of the tokens lack."""
        return tuple(sorted({layer for span in self.spans for layer in span.missing}))

    @property
    def is_whole(self) -> bool:
        """Whether all tokens are those of the whole model, as far as is known."""
        return all(span.is_whole for span in self.spans)

    @property
    def expected(self) -> Expected:
        """What the span is expected to cost that costs most; unknown where it is of one of them."""
        return max((span.expected for span in self.spans), key=lambda each: (each.basis == "unknown", each.nats or 0.0))


@dataclass(frozen=True, slots=True)
class PromptScores:
    """Log-probabilities of the tokens of a prompt, in nats.

    `logprobs` start at the second token; `best` are the most likely tokens after each prefix, one more.
    """

    logprobs: tuple[float, ...]
    best: tuple[int, ...]
    best_logprobs: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node as its router sees it. Times are in seconds of the last hops; `waiting` counts hops under way."""

    name: str
    layers: tuple[str, ...]
    state: NodeState
    median: float | None
    p99: float | None
    waiting: int
    hops: int
    failures: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class RequestView:
    """A request under way: the tokens made so far, the plan it runs, and the layers that are missing."""

    request: str
    tokens: int
    plan: str
    missing: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a node or a request: `kind` is `lost`, `late`, `returned`, `quarantined`, `replayed`,
    `degraded`, `refused`, `completed` or `joined`; `seconds` is the time since the swarm was gathered. `requests` are
    the last ones that used the answers of a node which was quarantined."""

    seconds: float
    kind: str
    text: str
    node: str = ""
    request: str = ""
    requests: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Overview:
    """A swarm at one moment."""

    model: str
    depth: int
    seconds: float
    nodes: tuple[NodeView, ...]
    running: tuple[RequestView, ...]
    completed: int
    refused: int
    degraded: int
    tokens: int
    live_layers: tuple[int, ...]
    quorum: str
    events: tuple[Event, ...]


MOST_STOPS = 16
"""Stop texts that a request may have; the API of OpenAI allows four."""

LEAST_TEMPERATURE = 1e-4
"""Below it the likeliest token is taken: logits divided by less leave the numbers of float32."""

LEAST_PENALTY = 0.01
"""The least penalty of a repetition: logits divided by less leave the numbers of float32."""

MOST_STOP_CHARACTERS = 1_000
"""Characters of the longest stop text: so much of an answer may have to be held back."""


@dataclass(frozen=True, slots=True)
class Decoding:
    """How the tokens of one answer are chosen.

    `temperature` divides the logits; below `LEAST_TEMPERATURE` decoding is greedy. Tokens are drawn from the `top_k`
    most likely (0: all), the fewest that have `top_p` of the probability, with at least `min_p` times the highest
    probability. `repetition_penalty` divides the positive logits of earlier tokens and multiplies the negative ones.
    The answer ends after `max_new_tokens`, at the end token (not before `min_new_tokens`) or at a text in `stop`. A
    `seed` makes it reproducible.

    >>> Decoding(16).temperature
    0.0
    >>> Decoding(16, top_p=0.0)
    Traceback (most recent call last):
        ...
    layerwise.errors.SwarmError: top_p is 0.0; write a number above 0 and up to 1
    """

    max_new_tokens: int
    min_new_tokens: int = 0
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    repetition_penalty: float = 1.0
    stop: tuple[str, ...] = ()
    seed: int | None = None
    min_p: float = 0.0

    @property
    def samples(self) -> bool:
        return self.temperature >= LEAST_TEMPERATURE

    def __post_init__(self) -> None:
        penalty = self.repetition_penalty
        rules = (
            ("max_new_tokens", self.max_new_tokens >= 1, "a whole number from 1"),
            ("min_new_tokens", 0 <= self.min_new_tokens <= self.max_new_tokens, "0 to max_new_tokens"),
            ("temperature", 0 <= self.temperature < math.inf, "0 (the likeliest token) or a positive number"),
            ("top_p", 0 < self.top_p <= 1, "a number above 0 and up to 1"),
            ("min_p", 0 <= self.min_p <= 1, "a number from 0 (all tokens) to 1"),
            ("top_k", self.top_k >= 0, "0 (all tokens) or a positive whole number"),
            (
                "repetition_penalty",
                LEAST_PENALTY <= penalty < math.inf,
                f"a number from {LEAST_PENALTY} (1 changes nothing)",
            ),
            ("stop", len(self.stop) <= MOST_STOPS and all(self.stop), f"up to {MOST_STOPS} texts, none of them empty"),
            ("stop", max(map(len, self.stop), default=0) <= MOST_STOP_CHARACTERS, "shorter texts"),
            ("seed", self.seed is None or -(2**63) <= self.seed < 2**63, "a whole number of 64 bits"),
        )
        for name, holds, instead in rules:
            if not holds:
                raise SwarmError(f"{name} is {str(getattr(self, name))[:80]}; write {instead}")
