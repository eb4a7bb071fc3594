"""What a swarm is asked and what it answers: how tokens are chosen, the answer, and how the swarm is."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

from layerwise.errors import SwarmError

Basis: TypeAlias = Literal["complete", "measured", "fitted", "unknown"]
"""Where an expected cost comes from: nothing is missing, this very set was measured, a model fitted to measured sets
predicts it, or nobody knows."""

Finish: TypeAlias = Literal["stop", "length"]
"""Why an answer ends: the model said so or a stop text was reached, or it is as long as was asked for."""

NodeState: TypeAlias = Literal["live", "suspected", "gone", "quarantined"]
"""A node answers in time; has been late; is dead; or gave an answer that its replicas contradict."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What missing layers are expected to cost, in nats per token above the whole model, with an interval of 90 %."""

    nats: float | None
    low: float | None
    high: float | None
    basis: Basis


COMPLETE = Expected(0.0, 0.0, 0.0, "complete")
UNKNOWN = Expected(None, None, None, "unknown")


@dataclass(frozen=True, slots=True)
class Answer:
    """What a request was answered with, and by which layers.

    `plan` is the text of the plan that ran last and `missing` the layers of the plan asked for that it lacks.
    `expected` is what they cost. `from_token` is the number of new tokens that were there when the plan became this
    one: 0 where nothing was lost on the way. It is not 0 where a layer was lost and came back in the middle, though
    nothing is missing in the end.
    """

    request: str
    tokens: tuple[int, ...]
    finish: Finish
    plan: str
    missing: tuple[int, ...]
    expected: Expected
    from_token: int = 0


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
    `degraded`, `refused`, `completed` or `joined`; `seconds` is the time since the swarm was gathered."""

    seconds: float
    kind: str
    text: str
    node: str = ""
    request: str = ""


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

MOST_STOP_CHARACTERS = 1_000
"""Characters of the longest stop text: so much of an answer may have to be held back."""


@dataclass(frozen=True, slots=True)
class Decoding:
    """How the tokens of one answer are chosen.

    `temperature` divides the logits; 0 takes the likeliest token. Of the distribution only the `top_k` likeliest tokens
    are kept (0: all), and of those the fewest that have `top_p` of the probability. `repetition_penalty` divides the
    positive logits of tokens that are there already, and multiplies the negative ones. The answer ends after
    `max_new_tokens`, at the model's end token (which none of the first `min_new_tokens` is), or where one of the texts
    in `stop` appears in the text of the new tokens. A request with a `seed` has the same answer again.

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

    def __post_init__(self) -> None:
        """Raise `SwarmError` for a value out of its range."""
        penalty = self.repetition_penalty
        rules = (
            ("max_new_tokens", self.max_new_tokens >= 1, "a whole number from 1"),
            ("min_new_tokens", 0 <= self.min_new_tokens <= self.max_new_tokens, "0 to max_new_tokens"),
            ("temperature", 0 <= self.temperature < math.inf, "0 (the likeliest token) or a positive number"),
            ("top_p", 0 < self.top_p <= 1, "a number above 0 and up to 1"),
            ("top_k", self.top_k >= 0, "0 (all tokens) or a positive whole number"),
            ("repetition_penalty", 0 < penalty < math.inf, "a positive number (1 changes nothing)"),
            ("stop", len(self.stop) <= MOST_STOPS and all(self.stop), f"up to {MOST_STOPS} texts, none of them empty"),
            ("stop", max(map(len, self.stop), default=0) <= MOST_STOP_CHARACTERS, "shorter texts"),
            ("seed", self.seed is None or -(2**63) <= self.seed < 2**63, "a whole number of 64 bits"),
        )
        for name, holds, instead in rules:
            if not holds:
                raise SwarmError(f"{name} is {str(getattr(self, name))[:80]}; write {instead}")
