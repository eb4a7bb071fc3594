"""The nodes as their router sees them: which layers each holds, how it answers, and whether it is to be relied on."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from statistics import median

from layerwise.swarm.answer import Event, NodeState, NodeView
from layerwise.swarm.deadlines import Latencies
from layerwise.swarm.messages import Hop, RemoteLayer, Reply

log = logging.getLogger("layerwise.swarm")

FAILURES = ("lost", "late", "quarantined", "degraded")
"""The kinds of events that are logged as warnings."""

MOST_EVENTS = 1000
"""Events that are remembered; older ones are forgotten."""


MOST_SERVED = 100
"""The last requests of a node that are remembered by name."""


@dataclass(slots=True)
class NodeRecord:
    """One node: its layers, its state, the durations of its hops, and the checks of its answers.

    `began` and `work` are those of the call under way, if there is one, and `waiting` counts the hops that wait for
    an answer. `process` is the process that answers.
    `requests` counts those of which it ran the first pass; `served` are the last ones that used its answers.
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
    hops: int = 0
    failures: int = 0
    requests: int = 0
    served: deque[str] = field(default_factory=lambda: deque(maxlen=MOST_SERVED))
    overhead: deque[float] = field(default_factory=lambda: deque(maxlen=200))
    per_layer: deque[float] = field(default_factory=lambda: deque(maxlen=200))

    def silent(self, now: float) -> float:
        return 0.0 if self.began is None else now - self.began

    def observe(self, seconds: float, reply: Reply, hop: Hop) -> None:
        """Note the duration of a hop, of its layers, and its process; a new process starts without a history."""
        self.hops += 1
        self.latencies.record(seconds, hop.work)
        self.overhead.append(max(seconds - reply.seconds, 0.0))
        self.per_layer.append(reply.seconds / len(hop.visits))
        if self.process and self.process != reply.process:
            self.requests = 0
            self.served.clear()
            if self.state == "quarantined":
                self.state, self.reason = "suspected", "a new process, which is yet to show that it computes"
        self.process = reply.process

    @property
    def layer_seconds(self) -> float:
        """The median of what a layer evaluation takes, on the node's own clock; 1 ms before anything is known."""
        return median(self.per_layer) if self.per_layer else 1e-3

    def hop_latency(self, now: float) -> float:
        """Return the seconds of a hop outside its layers, with its queue; 1 ms before any measurement."""
        usual, silent = median(self.overhead) if self.overhead else 1e-3, self.silent(now)
        late = silent if silent >= self.latencies.floor else 0.0
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
            self.hops,
            self.failures,
            self.reason,
        )


class NodeRecords:
    """All nodes of a swarm, and what has happened to them. `clock` gives seconds; `first` and `floor` are those of
    `Latencies`."""

    def __init__(self, clock: Callable[[], float], first: float = 10.0, floor: float = 0.05) -> None:
        self._members: dict[str, NodeRecord] = {}
        self._first, self._floor = first, floor
        self._clock = clock
        self._began = clock()
        self.events: deque[Event] = deque(maxlen=MOST_EVENTS)
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
        log.log(logging.WARNING if kind in FAILURES else logging.INFO, "node=%s %s: %s", node or "-", kind, text)

    def join(self, name: str, layers: Iterable[RemoteLayer]) -> NodeRecord:
        member = NodeRecord(name, frozenset(layers), Latencies(self._first, self._floor))
        self._members[name] = member
        self.note("joined", f"{name} holds {len(member.layers)} layers", node=name)
        return member

    def change(self, name: str, state: NodeState, kind: str, reason: str) -> bool:
        """Put a node into a state, and return whether it changed.

        Quarantine lasts until the node is gone or has a new process; a gone node returns when it computes.
        """
        member = self._members[name]
        only = {"quarantined": "gone", "gone": "live"}.get(member.state, state)
        if member.state == state or state != only:
            return False
        member.state, member.reason = state, "" if state == "live" else reason
        self.note(kind, reason, node=name, requests=tuple(member.served) if state == "quarantined" else ())
        return True

    def holders(self, layers: Collection[RemoteLayer], without: str) -> list[str]:
        return [member.name for member in self.live({without}) if member.layers.issuperset(layers)]

    def live(self, without: Collection[str] = ()) -> list[NodeRecord]:
        return [member for member in self._members.values() if member.state == "live" and member.name not in without]

    def live_layers(self, without: Collection[str] = ()) -> frozenset[RemoteLayer]:
        return frozenset().union(*(member.layers for member in self.live(without)))
