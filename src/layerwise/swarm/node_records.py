"""The nodes as their router sees them: which layers each holds, how it answers, and whether it is to be relied on."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from statistics import median

from layerwise.swarm.answer import Event, NodeState, NodeView
from layerwise.swarm.deadlines import Latencies
from layerwise.swarm.messages import Corrupt, Failure, Gone, Hop, Late, Refused, RemoteLayer
from layerwise.swarm.replication import Capacity
from layerwise.swarm.route import Offer

MOST_EVENTS = 1000
"""Events that are remembered; older ones are forgotten."""


@dataclass(slots=True)
class NodeRecord:
    """One node: what it holds, its state, what its hops took, and what is known of its answers.

    `answers` and `requests` count what a `ReplicaComparison` has looked at, and `strikes` the last answers in a row
    that changed the norm of the state as none before.
    """

    capacity: Capacity
    layers: frozenset[RemoteLayer]
    latencies: Latencies
    state: NodeState = "live"
    reason: str = ""
    waiting: int = 0
    checks: int = 0
    hops: int = 0
    failures: int = 0
    answers: int = 0
    requests: int = 0
    strikes: int = 0
    overhead: deque[float] = field(default_factory=lambda: deque(maxlen=200))
    per_layer: deque[float] = field(default_factory=lambda: deque(maxlen=200))

    @property
    def name(self) -> str:
        """The name of the node."""
        return self.capacity.name

    def observe(self, seconds: float, inside: float, hop: Hop) -> None:
        """Note a hop that was answered: how long it took, and how long of that the layers."""
        self.hops += 1
        self.latencies.record(seconds, hop.work)
        self.overhead.append(max(seconds - inside, 0.0))
        self.per_layer.append(inside / hop.evaluations)

    def may_be_checked(self) -> bool:
        """Whether the node, since it was last late, was not yet let show that it computes."""
        return self.checks == 0

    def missed(self, seconds: float, hop: Hop) -> None:
        """Note a hop that was not answered within the time that was waited for it."""
        self.failures += 1
        self.latencies.record(seconds, hop.work)

    @property
    def layer_seconds(self) -> float:
        """The median of what a layer evaluation takes, on the node's own clock; 1 ms before anything is known."""
        return median(self.per_layer) if self.per_layer else 1e-3

    @property
    def hop_seconds(self) -> float:
        """The median of what a hop takes beside its layers; 1 ms before anything is known."""
        return median(self.overhead) if self.overhead else 1e-3

    def offer(self) -> Offer:
        """What the node asks for a hop."""
        watts = self.capacity.watts
        return Offer(self.name, self.layers, self.hop_seconds, self.layer_seconds, watts, self.waiting)

    def view(self) -> NodeView:
        """The node as users see it."""
        names = tuple(layer.name for layer in sorted(self.layers))
        return NodeView(
            self.name, names, self.state, self.latencies.quantile(0.5), self.latencies.quantile(0.99), self.waiting,
            self.hops, self.failures, self.reason,
        )  # fmt: skip


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
        """The time since the swarm was gathered."""
        return self._clock() - self._began

    def note(self, kind: str, text: str, *, node: str = "", request: str = "") -> None:
        """Remember an event."""
        self.events.append(Event(self.seconds, kind, text, node, request))

    def join(self, capacity: Capacity, layers: Iterable[RemoteLayer]) -> NodeRecord:
        """A node that holds these layers is there."""
        member = NodeRecord(capacity, frozenset(layers), Latencies(self._first, self._floor))
        self._members[member.name] = member
        self.note("joined", f"{member.name} holds {len(member.layers)} layers", node=member.name)
        return member

    def change(self, name: str, state: NodeState, kind: str, reason: str) -> bool:
        """Put a node into a state; whether it was in another.

        What is quarantined stays so until it is gone, and what is gone is not quarantined: it may come back mended.
        """
        member = self._members[name]
        stays = member.state == "quarantined" and state != "gone"
        if stays or member.state == state or (member.state, state) == ("gone", "quarantined"):
            return False
        member.state, member.reason = state, "" if state == "live" else reason
        member.checks = 0
        self.note(kind, reason, node=name)
        return True

    def failed(self, name: str, response: Failure) -> None:
        """Draw the consequences of a call that a node has not answered as it should."""
        match response:
            case Gone(reason=reason):
                self.change(name, "gone", "lost", f"{name} is gone: {reason}")
            case Late(seconds=seconds):
                self.change(name, "suspected", "late", f"{name} did not answer within {seconds:.2f} s")
            case Corrupt(reason=reason) | Refused(reason=reason):
                self.change(name, "suspected", "lost", f"{name}: {reason}")

    def holders(self, layers: Collection[RemoteLayer], without: str) -> list[str]:
        """The other live nodes that hold all of these layers."""
        return [member.name for member in self.live({without}) if member.layers.issuperset(layers)]

    def live(self, without: Collection[str] = ()) -> list[NodeRecord]:
        """The nodes that are relied on."""
        return [member for member in self._members.values() if member.state == "live" and member.name not in without]

    def live_layers(self, without: Collection[str] = ()) -> frozenset[RemoteLayer]:
        """The layers that some live node holds."""
        return frozenset().union(*(member.layers for member in self.live(without)))
