"""A swarm of a thousand nodes as a discrete-event simulation: what saturates first, and when one router is too few.

Nodes answer with nothing; what is simulated is time. A request is one token of an answer: a hop through each part of
the model, at the replica with the fewest hops waiting. Three kinds of station have queues: the router, which works on
every hop for `router` seconds (measured with real messages), its network link, and every node. Nodes leave and come
back (churn), some hops take long (Pareto's tail), and racks are lost whole. A hop to a lost node ends at the deadline,
which `layerwise.swarm.routing.deadlines` derives from the last hops, and the request goes to another replica; where
none of a part is left, its layers are missing from the answer.

    throughput <= min(routers / (hops x router), bandwidth / (hops x bytes), nodes / (hops x service))
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count
from math import ceil

from layerwise.swarm.routing.deadlines import DeadlineRule, Latencies


@dataclass(frozen=True, slots=True)
class World:
    """What is simulated; times are in seconds, rates per second of virtual time.

    `parts` spans make up the model, of `layers_per_part` layers; nodes are dealt to them in turn. `hop` is a message
    there and back, `layer` a layer evaluation, `router` what one hop costs the router's processor, `bytes` what it
    sends and receives. A node is lost every `life` seconds on the mean and is back after `repair`; a rack of
    `rack_size` nodes every `rack_life`. A hop takes `hop` times a Pareto variable of shape `tail`. So many
    tokens are under way at once as `load` times the nodes: one that is made is followed by the next, as with
    back-pressure. The first half of the `tokens` is not counted.
    """

    nodes: int
    parts: int = 4
    layers_per_part: int = 3
    hop: float = 0.002
    layer: float = 0.001
    router: float = 0.0005
    routers: int = 1
    bytes: float = 16_384.0
    bandwidth: float = 1.25e9
    life: float = 3600.0
    repair: float = 60.0
    rack_size: int = 20
    rack_life: float = 36_000.0
    tail: float = 2.5
    load: float = 2.0
    tokens: int = 10_000
    seed: int = 0

    @property
    def service(self) -> float:
        """What a node computes for a hop."""
        return self.layers_per_part * self.layer

    def limits(self) -> dict[str, float]:
        """Tokens a second that the router, the network and the nodes could each carry."""
        return {
            "router": self.routers / (self.parts * self.router),
            "network": self.bandwidth / (self.parts * self.bytes),
            "nodes": self.nodes / (self.parts * self.service),
        }

    def saturates(self) -> str:
        """What carries least."""
        limits = self.limits()
        return min(limits, key=lambda name: limits[name])


def nodes_of_one_router(world: World) -> int:
    """From how many nodes on the router, and not the nodes, bounds the throughput: routers x service / router."""
    return ceil(world.routers * world.service / world.router)


@dataclass(slots=True)
class Measured:
    """What a simulation gave: tokens a second, latency quantiles, the share of tokens made without all layers."""

    world: World
    throughput: float
    p50: float
    p99: float
    degraded: float
    retries: float
    busy: dict[str, float]


@dataclass(slots=True)
class _Node:
    part: int
    free_at: float = 0.0
    up: bool = True


@dataclass(slots=True)
class _Token:
    began: float
    part: int = 0
    missing: int = 0
    tried: set[int] = field(default_factory=set)


class _Simulation:
    """The events of one world, in the order of time."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.chance = random.Random(world.seed)
        self.nodes = [_Node(number % world.parts) for number in range(world.nodes)]
        self.of_part = [[i for i in range(world.nodes) if i % world.parts == part] for part in range(world.parts)]
        self.now = 0.0
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.order = count()
        self.routers = [0.0] * world.routers
        self.link = 0.0
        self.work = {"router": 0.0, "network": 0.0, "nodes": 0.0}
        self.suspected: dict[int, float] = {}
        self.latencies = [Latencies(DeadlineRule(first=1.0, floor=0.02)) for _ in range(world.parts)]
        self.done: list[tuple[float, bool]] = []
        self.hops = self.retries = 0

    def at(self, when: float, what: Callable[[], None]) -> None:
        heapq.heappush(self.events, (when, next(self.order), what))

    def run(self) -> Measured:
        world = self.world
        self._begin_failures()
        for _ in range(max(1, round(world.load * world.nodes))):
            self._next_hop(_Token(self.now))
        half = 0.0
        while len(self.done) < world.tokens:
            self.now, _, event = heapq.heappop(self.events)
            event()
            if not half and len(self.done) >= world.tokens // 2:
                half, before = self.now, dict(self.work)
        counted = self.done[world.tokens // 2 :]
        late, span = sorted(seconds for seconds, _ in counted), max(self.now - half, 1e-9)
        capacity = {"router": world.routers, "network": 1, "nodes": world.nodes}
        return Measured(
            world, len(counted) / span, late[len(late) // 2], late[int(0.99 * (len(late) - 1))],
            sum(lost for _, lost in counted) / len(counted), self.retries / max(self.hops, 1),
            {name: (self.work[name] - before[name]) / (capacity[name] * span) for name in before},
        )  # fmt: skip

    def _begin_failures(self) -> None:
        world = self.world
        for number in range(world.nodes):
            # In the steady state a share repair / (life + repair) of the nodes is away.
            self.nodes[number].up = self.chance.random() > world.repair / (world.life + world.repair)
        racks = range(0, world.nodes, world.rack_size)
        for first in racks:
            away = self.chance.random() < world.repair / (world.rack_life + world.repair)
            when = self.chance.expovariate(1 / world.rack_life)
            for number in range(first, min(first + world.rack_size, world.nodes)):
                self.nodes[number].up &= not away
                self.at(when, lambda number=number: self._down(number))  # type: ignore[misc]
        for number, node in enumerate(self.nodes):
            if not node.up:
                self.suspected[number] = self.chance.expovariate(1 / world.repair)  # the router knows of these
                self.at(self.suspected[number], lambda number=number: self._up(number))  # type: ignore[misc]
            else:
                when = self.chance.expovariate(1 / world.life)
                self.at(when, lambda number=number: self._down(number))  # type: ignore[misc]

    def _down(self, number: int) -> None:
        self.nodes[number].up = False
        self.at(self.now + self.chance.expovariate(1 / self.world.repair), lambda: self._up(number))

    def _up(self, number: int) -> None:
        self.nodes[number].up = True
        self.suspected.pop(number, None)

    def _next_hop(self, token: _Token) -> None:
        world = self.world
        if token.part == world.parts:
            self.done.append((self.now - token.began, bool(token.missing)))
            # The next token of a stream begins when this one is made; through the queue, since a part may be missing.
            self.at(self.now, lambda: self._next_hop(_Token(self.now)))
            return
        holders = self.of_part[token.part]
        # Two choices: of two replicas drawn, the one with less before it; a router need not look at all of them.
        live = [number for number in self.chance.sample(holders, min(4, len(holders))) if number not in self.suspected]
        live = live[:2] or [number for number in holders if number not in self.suspected][:2]
        live = [number for number in live if number not in token.tried] or live
        if not live:
            token.missing += world.layers_per_part
            token.part += 1
            self._next_hop(token)
            return
        chosen = min(live, key=lambda number: self.nodes[number].free_at)
        self.hops += 1
        at = min(range(world.routers), key=lambda router: self.routers[router])
        begins = max(self.now, self.routers[at])
        self.routers[at] = begins + world.router
        self.work["router"] += world.router
        self.link = max(self.routers[at], self.link) + world.bytes / world.bandwidth
        self.work["network"] += world.bytes / world.bandwidth
        self.at(self.link, lambda: self._send(token, chosen))

    def _send(self, token: _Token, number: int) -> None:
        world, node, latencies = self.world, self.nodes[number], self.latencies[token.part]
        sent, deadline = self.now, latencies.deadline()
        travel = world.hop * 0.5 * self.chance.paretovariate(world.tail)
        node.free_at = max(sent + travel, node.free_at) + world.service
        ends = node.free_at + world.hop * 0.5
        if node.up and ends - sent <= deadline:
            self.work["nodes"] += world.service

            def answered() -> None:
                latencies.record(self.now - sent)
                token.part, token.tried = token.part + 1, set()
                self._next_hop(token)

            self.at(ends, answered)
            return

        def late() -> None:
            latencies.record(deadline)
            self.retries += 1
            token.tried.add(number)
            if not node.up:
                self.suspected[number] = self.now
            self._next_hop(token)

        self.at(sent + deadline, late)


def simulate(world: World) -> Measured:
    """The world run for its seconds of virtual time, from empty queues."""
    return _Simulation(world).run()


def by_size(world: World, sizes: tuple[int, ...] = (10, 30, 100, 300, 1000)) -> list[Measured]:
    """The same world with so many nodes each, and as many more tokens under way."""
    tokens = max(world.tokens, round(8 * world.load * max(sizes)))
    return [simulate(replace(world, nodes=nodes, tokens=tokens)) for nodes in sizes]


def uncovered(world: World, samples: int = 500) -> float:
    """The share of the parts of the model that no node holds in the steady state of churn and lost racks.

    A node is away for repair / (life + repair) of the time, and a rack for repair / (rack life + repair).
    """
    chance = random.Random(f"uncovered/{world.seed}")
    node_away = world.repair / (world.life + world.repair)
    rack_away = world.repair / (world.rack_life + world.repair)
    missing = 0
    for _ in range(samples):
        racks = [chance.random() < rack_away for _ in range(0, world.nodes, world.rack_size)]
        live = {
            number % world.parts
            for number in range(world.nodes)
            if not racks[number // world.rack_size] and chance.random() >= node_away
        }
        missing += world.parts - len(live)
    return missing / (samples * world.parts)
