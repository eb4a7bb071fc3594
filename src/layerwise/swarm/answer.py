"""What a swarm tells those who use it: the answer to a request, and how the swarm is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

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
    queued: int
    completed: int
    refused: int
    degraded: int
    tokens: int
    live_layers: tuple[int, ...]
    quorum: str
    events: tuple[Event, ...]
