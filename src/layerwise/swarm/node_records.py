"""Nodes as their router sees them: layers, state, latencies and deadlines."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from math import ceil
from statistics import median

from layerwise.swarm.answer import Event, NodeState, NodeView
from layerwise.swarm.messages import RemoteLayer, Reply, RunLayers

MAX_SAMPLES = 200

MIN_SAMPLES = 20

UNKNOWN_FACTOR = 4.0
"""Maximum deadline of a node with few calls, relative to the deadline of the other nodes."""

DEADLINE_FACTOR = 2.0
"""Deadline relative to the 99th percentile of a node's latencies."""

MAX_MEDIANS = 10.0
"""Maximum deadline relative to the median latency of all nodes."""

MAX_FIRST_DEADLINES = 3.0
"""Maximum deadline, relative to the deadline of a first call (10 s by default, so 30 s)."""

FIRST_PER_WORK = 0.02
"""Seconds per token and layer evaluation that are added to the deadline of a first call."""


def _recent() -> deque[float]:
    return deque(maxlen=MAX_SAMPLES)


def _quantile(seconds: Collection[float], share: float) -> float:
    return sorted(seconds)[ceil(share * len(seconds)) - 1]


@dataclass(slots=True)
class Latencies:
    """Latencies of one node's calls, and the deadlines derived from them, in seconds.

    Until enough calls were timed, the deadline is `first` plus a fixed time per unit of work. No deadline is below
    `floor`. Calls are grouped by work (layer evaluations x tokens x sequences) in powers of four. Latency is assumed to
    grow with the work, at most in proportion. A group with few calls is therefore bounded by the groups with less and
    more work. If a node becomes slow, its deadline grows up to a fixed limit.
    """

    first: float = 10.0
    floor: float = 0.05
    _all: deque[float] = field(default_factory=_recent)
    _classes: dict[int, deque[float]] = field(default_factory=dict)

    def record(self, seconds: float, work: int = 1) -> None:
        self._all.append(seconds)
        self._classes.setdefault(_work_class(work), _recent()).append(seconds)

    def quantile(self, share: float) -> float | None:
        """Return a quantile of the recent latencies, or `None` before the first call."""
        return _quantile(self._all, share) if self._all else None

    def deadline(self, work: int = 1, others: Latencies | None = None) -> float:
        """Return the seconds after which an unanswered call with this much `work` is late.

        The deadline of a node with few calls is at most `UNKNOWN_FACTOR` times that of the `others`.
        """
        own = self._estimate_quantile(0.99, work)
        usual = None if others is None else others._estimate_quantile(0.99, work)
        if own is not None:
            seconds = DEADLINE_FACTOR * own
        else:
            first = self.first + FIRST_PER_WORK * work
            seconds = first if usual is None else min(first, UNKNOWN_FACTOR * DEADLINE_FACTOR * usual)
        median = None if others is None else others._estimate_quantile(0.5, work)
        limit = MAX_FIRST_DEADLINES * self.first
        return max(self.floor, min(seconds, limit if median is None else min(limit, MAX_MEDIANS * median)))

    def timeout(self, work: int = 1) -> float:
        return MAX_FIRST_DEADLINES * max(self.floor, self.first) + FIRST_PER_WORK * work

    def _estimate_quantile(self, share: float, work: int) -> float | None:
        samples = self._classes.get(_work_class(work), ())
        if len(samples) >= MIN_SAMPLES:
            return _quantile(samples, share)
        bounds = [
            _quantile(each, share) * (1.0 if number > _work_class(work) else work / int(4**number))
            for number, each in self._classes.items()
            if len(each) >= MIN_SAMPLES
        ]
        return min(bounds, default=None)


def _work_class(work: int) -> int:
    """Return the integer part of log4(work).

    >>> [_work_class(work) for work in (1, 3, 4, 15, 16)]
    [0, 0, 1, 1, 2]
    """
    return (max(work, 1).bit_length() - 1) // 2


log = logging.getLogger("layerwise.swarm")

WARNINGS = ("lost", "late", "quarantined", "degraded")
"""Kinds of events that are logged as warnings."""

MAX_EVENTS = 1000

MAX_SERVED = 100


@dataclass(slots=True)
class NodeRecord:
    """One node: its layers, its state, and the latencies of its calls.

    `began` and `work` are the start time and size of the current call, `waiting` counts unanswered calls, and `process`
    identifies the node's process. `requests` counts the requests whose first pass the node ran, and `served` names the
    last requests that used its results.
    """

    name: str
    layers: frozenset[RemoteLayer]
    latencies: Latencies
    state: NodeState = "live"
    reason: str = ""
    began: float | None = None
    work: int = 1
    waiting: int = 0
    process: str = ""
    calls: int = 0
    failures: int = 0
    requests: int = 0
    served: deque[str] = field(default_factory=lambda: deque(maxlen=MAX_SERVED))
    overhead: deque[float] = field(default_factory=lambda: deque(maxlen=200))
    per_layer: deque[float] = field(default_factory=lambda: deque(maxlen=200))

    def silence(self, now: float) -> float:
        return 0.0 if self.began is None else now - self.began

    def observe(self, seconds: float, reply: Reply, call: RunLayers) -> None:
        """Record the latencies of a call. If the node has a new process, its request history is cleared."""
        self.calls += 1
        self.latencies.record(seconds, call.work)
        self.overhead.append(max(seconds - reply.seconds, 0.0))
        self.per_layer.append(reply.seconds / len(call.visits))
        if self.process and self.process != reply.process:
            self.requests = 0
            self.served.clear()
            if self.state == "quarantined":
                self.state, self.reason = "suspected", "a new process that has not passed a health check yet"
        self.process = reply.process

    @property
    def layer_seconds(self) -> float:
        """Median seconds per layer evaluation, as measured by the node (1 ms before the first call)."""
        return median(self.per_layer) if self.per_layer else 1e-3

    def call_latency(self, now: float) -> float:
        """Return the seconds that a new call takes in addition to its layers: the usual overhead, and the queue."""
        usual, silence = median(self.overhead) if self.overhead else 1e-3, self.silence(now)
        late = silence if silence >= self.latencies.floor else 0.0
        return usual + late + self.waiting * len(self.layers) * self.layer_seconds

    def view(self) -> NodeView:
        names = tuple(layer.name for layer in sorted(self.layers))
        return NodeView(
            self.name,
            names,
            self.state,
            self.latencies.quantile(0.5),
            self.latencies.quantile(0.99),
            self.waiting,
            self.calls,
            self.failures,
            self.reason,
        )


class NodeRecords:
    """Records of all nodes of a swarm, and its events. `first` and `floor` are passed on to `Latencies`."""

    def __init__(self, clock: Callable[[], float], first: float = 10.0, floor: float = 0.05) -> None:
        self._members: dict[str, NodeRecord] = {}
        self._first, self._floor = first, floor
        self._clock = clock
        self._began = clock()
        self.events: deque[Event] = deque(maxlen=MAX_EVENTS)
        self.latencies = Latencies()

    def __getitem__(self, name: str) -> NodeRecord:
        return self._members[name]

    def __iter__(self) -> Iterator[NodeRecord]:
        return iter(self._members.values())

    @property
    def seconds(self) -> float:
        return self._clock() - self._began

    def note(self, kind: str, text: str, *, node: str = "", request: str = "", requests: tuple[str, ...] = ()) -> None:
        self.events.append(Event(self.seconds, kind, text, node, request, requests))
        log.log(logging.WARNING if kind in WARNINGS else logging.INFO, "node=%s %s: %s", node or "-", kind, text)

    def join(self, name: str, layers: Iterable[RemoteLayer]) -> NodeRecord:
        member = NodeRecord(name, frozenset(layers), Latencies(self._first, self._floor))
        self._members[name] = member
        self.note("joined", f"{name} holds {len(member.layers)} layers", node=name)
        return member

    def change(self, name: str, state: NodeState, kind: str, reason: str) -> bool:
        """Set the state of a node and return True if it changed.

        Quarantine lasts until the node fails or has a new process. A failed node is live again once it passes a health
        check.
        """
        member = self._members[name]
        allowed = {"quarantined": "gone", "gone": "live"}.get(member.state, state)
        if member.state == state or state != allowed:
            return False
        member.state, member.reason = state, "" if state == "live" else reason
        self.note(kind, reason, node=name, requests=tuple(member.served) if state == "quarantined" else ())
        return True

    def find_holders(self, layers: Collection[RemoteLayer], without: str) -> list[str]:
        return [member.name for member in self.live({without}) if member.layers.issuperset(layers)]

    def live(self, without: Collection[str] = ()) -> list[NodeRecord]:
        return [member for member in self._members.values() if member.state == "live" and member.name not in without]

    def live_layers(self, without: Collection[str] = ()) -> frozenset[RemoteLayer]:
        return frozenset().union(*(member.layers for member in self.live(without)))
