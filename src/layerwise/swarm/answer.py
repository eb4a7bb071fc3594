"""Sampling settings, answers and overviews of a swarm."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from layerwise.errors import SwarmError

Basis: TypeAlias = Literal["complete", "measured", "unknown"]
"""Basis of an expected cost: `complete` (no layer is missing), `measured` (in a sweep), or `unknown`."""

Finish: TypeAlias = Literal["stop", "length"]
"""Reason for the end of an answer: `stop` is an end token or stop text, `length` the maximum number of tokens."""

NodeState: TypeAlias = Literal["live", "suspected", "gone", "quarantined"]
"""State of a node: `suspected` if it missed a health check, `gone` if it failed, `quarantined` after a wrong result."""


@dataclass(frozen=True, slots=True)
class ExpectedCost:
    """Expected loss increase in nats/token from missing layers, with its 95% interval; `None` if unknown."""

    nats: float | None
    low: float | None
    high: float | None
    basis: Basis


COMPLETE = ExpectedCost(0.0, 0.0, 0.0, "complete")
UNKNOWN = ExpectedCost(None, None, None, "unknown")


@dataclass(frozen=True, slots=True)
class TokenSpan:
    """Tokens `start` to `stop - 1` of an answer, all generated with the same plan and the same missing layers.

    `plan` is the plan that ran. `missing` lists the layers of the requested plan that did not run, and `expected` is
    the cost of their absence. `earlier` lists layers that were missing for earlier tokens. `doubted` lists nodes that
    were later found to return wrong results.
    """

    start: int
    stop: int
    plan: str
    missing: tuple[int, ...] = ()
    expected: ExpectedCost = COMPLETE
    earlier: tuple[int, ...] = ()
    doubted: tuple[str, ...] = ()

    @property
    def is_complete(self) -> bool:
        return self.expected.basis == "complete" and not self.earlier and not self.doubted


def join_spans(before: Sequence[TokenSpan], at: int, after: Sequence[TokenSpan]) -> tuple[TokenSpan, ...]:
    """Join the spans `before`, cut to the first `at` tokens, and the spans `after`, which count tokens from `at`."""
    spans = [replace(span, stop=min(span.stop, at)) for span in before if span.start < at]
    spans[-1:] = [replace(span, stop=at) for span in spans[-1:]]
    missing_before = {layer for span in spans for layer in (*span.missing, *span.earlier)}
    doubted = {node for span in spans for node in span.doubted}
    for span in after:
        earlier = tuple(sorted({*span.earlier, *missing_before} - set(span.missing)))
        shifted = replace(span, start=span.start + at, stop=span.stop + at, earlier=earlier)
        shifted = replace(shifted, doubted=tuple(sorted({*span.doubted, *doubted})))
        if spans and replace(spans[-1], start=shifted.start, stop=shifted.stop) == shifted:
            spans[-1] = replace(spans[-1], stop=shifted.stop)
        else:
            spans.append(shifted)
    return tuple(spans)


@dataclass(frozen=True, slots=True)
class Answer:
    """A generated answer. Its `spans` cover all tokens and record the plan behind each of them."""

    request: str
    tokens: tuple[int, ...]
    finish: Finish
    spans: tuple[TokenSpan, ...]

    @property
    def plan(self) -> str:
        """Text of the plan that computed the last tokens."""
        return self.spans[-1].plan

    @property
    def from_token(self) -> int:
        """Index of the first token of the last span."""
        return self.spans[-1].start

    @property
    def missing(self) -> tuple[int, ...]:
        """Layers that were missing for any of the tokens."""
        return tuple(sorted({layer for span in self.spans for layer in span.missing}))

    @property
    def is_complete(self) -> bool:
        """True if all layers computed every token and no node returned a wrong result."""
        return all(span.is_complete for span in self.spans)

    @property
    def expected(self) -> ExpectedCost:
        """The highest expected cost among the spans. It is unknown if the cost of any span is unknown."""
        return max((span.expected for span in self.spans), key=lambda each: (each.basis == "unknown", each.nats or 0.0))


@dataclass(frozen=True, slots=True)
class PromptScores:
    """Log-probabilities of the tokens of a prompt.

    `logprobs` starts at the second token. `best[i]` is the most likely token after the first `i + 1` tokens.
    """

    logprobs: tuple[float, ...]
    best: tuple[int, ...]
    best_logprobs: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node as its router sees it. `median` and `p99` are latencies in seconds; `waiting` counts unanswered calls."""

    name: str
    layers: tuple[str, ...]
    state: NodeState
    median: float | None
    p99: float | None
    waiting: int
    calls: int
    failures: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class RequestView:
    """A running request: the number of its tokens so far, its current plan, and the missing layers."""

    request: str
    tokens: int
    plan: str
    missing: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a node or request, `seconds` after the swarm started.

    `kind` is `lost`, `late`, `returned`, `quarantined`, `replayed`, `degraded`, `refused`, `completed` or `joined`. If
    a node is quarantined, `requests` names the last requests that used its results.
    """

    seconds: float
    kind: str
    text: str
    node: str = ""
    request: str = ""
    requests: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Overview:
    """State of a swarm at one moment."""

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


MAX_STOPS = 16
"""Maximum number of stop texts (OpenAI's API allows four)."""

MIN_TEMPERATURE = 1e-4
"""Decoding is greedy below this temperature, since dividing by a smaller one overflows float32."""

MIN_PENALTY = 0.01
"""Minimum repetition penalty, since dividing by a smaller one overflows float32."""

MAX_STOP_LENGTH = 1_000
"""Maximum number of characters of a stop text, which limits how much text streaming holds back."""


@dataclass(frozen=True, slots=True)
class Decoding:
    """Sampling settings of one answer.

    Logits are divided by `temperature`; below `MIN_TEMPERATURE`, decoding is greedy. Tokens are sampled from the
    `top_k` most likely ones (0: all), from the smallest set with total probability `top_p`, and only if they have at
    least `min_p` times the highest probability. `repetition_penalty` divides the positive logits of tokens that already
    occurred and multiplies their negative logits. The answer ends after `max_new_tokens`, at a text in `stop`, or at
    the end token (but not before `min_new_tokens`). With a `seed`, the answer is reproducible.

    >>> Decoding(16).temperature
    0.0
    >>> Decoding(16, top_p=0.0)
    Traceback (most recent call last):
        ...
    layerwise.errors.SwarmError: top_p must be above 0 and at most 1, got 0.0.
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
    def is_sampled(self) -> bool:
        return self.temperature >= MIN_TEMPERATURE

    def __post_init__(self) -> None:
        penalty = self.repetition_penalty
        rules = (
            ("max_new_tokens", self.max_new_tokens >= 1, "at least 1"),
            ("min_new_tokens", 0 <= self.min_new_tokens <= self.max_new_tokens, "between 0 and max_new_tokens"),
            ("temperature", 0 <= self.temperature < math.inf, "0 (greedy) or a positive number"),
            ("top_p", 0 < self.top_p <= 1, "above 0 and at most 1"),
            ("min_p", 0 <= self.min_p <= 1, "between 0 (all tokens) and 1"),
            ("top_k", self.top_k >= 0, "0 (all tokens) or a positive integer"),
            ("repetition_penalty", MIN_PENALTY <= penalty < math.inf, f"at least {MIN_PENALTY} (1 disables it)"),
            ("stop", len(self.stop) <= MAX_STOPS and all(self.stop), f"at most {MAX_STOPS} nonempty texts"),
            (
                "stop",
                max(map(len, self.stop), default=0) <= MAX_STOP_LENGTH,
                f"texts of at most {MAX_STOP_LENGTH} characters",
            ),
            ("seed", self.seed is None or -(2**63) <= self.seed < 2**63, "a 64-bit integer"),
        )
        for name, is_met, constraint in rules:
            if not is_met:
                raise SwarmError(f"{name} must be {constraint}, got {str(getattr(self, name))[:80]}.")
