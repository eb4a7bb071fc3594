"""Which node runs which layers of a request: the cheapest route, by what latency, nats, energy and device life cost.

Pure functions of values. What a node asks for a hop is in its `Offer`; what the user pays for each of the four is in
`Prices`. Consecutive visits on one node are one leg, which costs one hop. Hops that wait at a node run first, each
taken to visit every layer that the node holds, so that a busy node is dearer. The nats of several visits left out are
taken to add up; what they cost together, `layerwise.swarm.cost.estimate` says.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Literal, TypeAlias

import numpy as np

from layerwise.errors import SwarmError
from layerwise.swarm.messages import RemoteLayer, RemoteVisit
from layerwise.swarm.routing.route_search import OMITTED, Costs, greedy, in_order, over_subsets

Order: TypeAlias = Literal["fixed", "any"]
"""Whether a model runs its layers in its own order, or was trained to run them in any."""

EXACT = 12
"""Visits in any order for which the cheapest route is searched exactly, over all their subsets."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A live node: the layers that it holds and what they take there.

    `hop_seconds` is a message there and back without the layers, `layer_seconds` one layer evaluation, `watts` what
    the device draws while it computes, `joules_per_hop` what carrying a message takes, `life_per_second` the share of
    the device's life that a second of computing uses up, and `waiting` the hops under way or queued at the node.
    """

    node: str
    layers: frozenset[RemoteLayer]
    hop_seconds: float
    layer_seconds: float
    watts: float
    joules_per_hop: float = 0.0
    life_per_second: float = 0.0
    waiting: int = 0

    @property
    def hop_latency(self) -> float:
        """The seconds that a hop takes beside its own layers."""
        return self.hop_seconds + self.waiting * len(self.layers) * self.layer_seconds


@dataclass(frozen=True, slots=True)
class Prices:
    """The weight of a second, of a nat per token, of a joule, and of a whole device's life.

    Without a price of nats, quality is not for sale: a visit that a node offers is never left out to save the others.
    """

    latency: float = 1.0
    nats: float = 0.0
    energy: float = 0.0
    life: float = 0.0

    def __post_init__(self) -> None:
        for name in ("latency", "nats", "energy", "life"):
            price = getattr(self, name)
            if not 0 <= price < inf:
                raise SwarmError(f"the price of {name} is a number from 0, not {price!r}")

    def of(self, seconds: float, joules: float, life: float, nats: float = 0.0) -> float:
        """What these amounts cost together."""
        return self.latency * seconds + self.energy * joules + self.life * life + self.nats * nats

    def hop(self, offer: Offer) -> float:
        """What a hop to a node costs, without what it runs."""
        return self.of(offer.hop_latency, offer.joules_per_hop, 0.0)

    def visit(self, offer: Offer, replay: float) -> float:
        """What one visit at a node costs, where the node must first compute for `replay` seconds."""
        seconds = offer.layer_seconds + replay
        return self.of(seconds, offer.watts * seconds, offer.life_per_second * seconds)


@dataclass(frozen=True, slots=True)
class Leg:
    """What one hop runs."""

    node: str
    visits: tuple[RemoteVisit, ...]


@dataclass(frozen=True, slots=True)
class Route:
    """The legs in turn, the visits that nobody runs, and what all of it takes."""

    legs: tuple[Leg, ...]
    omitted: tuple[RemoteVisit, ...]
    cost: float
    seconds: float
    joules: float
    life: float
    nats: float


@dataclass(frozen=True, slots=True)
class Uncovered:
    """There is no route: no live node holds the layers of these visits, and they may not be left out."""

    visits: tuple[RemoteVisit, ...]


Replay: TypeAlias = Mapping[tuple[str, RemoteVisit], float]
"""The seconds that a node without a request's history needs to replay it before it can run a visit."""


def cheapest(
    visits: Sequence[RemoteVisit],
    offers: Collection[Offer],
    prices: Prices,
    order: Order,
    extra: Replay | None = None,
    may_omit: Mapping[RemoteVisit, float] | None = None,
) -> Route | Uncovered:
    """The route of least cost through `visits`.

    `may_omit` says of each visit that may be left out what that costs, in nats per token. Where nobody offers it, it
    is left out; where somebody does, only if there is a price of nats and leaving it out is cheaper.

    In a fixed order the route is exact. In any order it is exact up to `EXACT` visits and greedy beyond (see
    `route_search.greedy` for the rule); its legs stand in the order of their first visits.
    """
    ordered = sorted(offers, key=lambda offer: offer.node)
    search = _Search(visits, ordered, prices, extra or {}, may_omit or {})
    hops, runs = np.array([prices.hop(offer) for offer in ordered]), search.runs()
    omissions = search.omissions(runs)
    impossible = ~np.isfinite(np.minimum(runs.min(axis=1, initial=np.inf), omissions))
    if impossible.any():
        return Uncovered(tuple(visit for visit, cannot in zip(visits, impossible, strict=True) if cannot))
    if order == "fixed":
        owners = in_order(hops, runs, omissions)
    else:
        owners = (over_subsets if len(visits) <= EXACT else greedy)(hops, runs, omissions)
    return search.route(owners, order)


def next_leg(
    visits: Sequence[RemoteVisit],
    done: Collection[RemoteVisit],
    offers: Collection[Offer],
    prices: Prices,
    order: Order = "any",
    extra: Replay | None = None,
    may_omit: Mapping[RemoteVisit, float] | None = None,
) -> Leg | Uncovered | None:
    """Which live node runs which layers next, when the visits in `done` have run; `None` when nothing is left.

    In any order it is the leg of the cheapest route whose node has the fewest hops waiting: the other queues grow
    shorter meanwhile.
    """
    left = [visit for visit in visits if visit not in done]
    route = cheapest(left, offers, prices, order, extra, may_omit)
    if isinstance(route, Uncovered):
        return route
    if order == "fixed":
        return next(iter(route.legs), None)
    waiting = {offer.node: offer.waiting for offer in offers}
    return min(route.legs, key=lambda leg: waiting[leg.node], default=None)


@dataclass(frozen=True, slots=True)
class _Search:
    """The visits to be run and the nodes that may run them, with what each costs; see `route_search`."""

    visits: Sequence[RemoteVisit]
    offers: Sequence[Offer]
    prices: Prices
    extra: Replay
    may_omit: Mapping[RemoteVisit, float]

    def runs(self) -> Costs:
        """What each visit costs on each node (visits, nodes)."""
        costs = np.full((len(self.visits), len(self.offers)), np.inf)
        for column, offer in enumerate(self.offers):
            for row, visit in enumerate(self.visits):
                if visit.layer in offer.layers:
                    costs[row, column] = self.prices.visit(offer, self.extra.get((offer.node, visit), 0.0))
        return costs

    def omissions(self, runs: Costs) -> Costs:
        """What leaving each visit out costs (visits,)."""
        covered = np.isfinite(runs.min(axis=1, initial=np.inf))
        costs = np.full(len(self.visits), np.inf)
        for row, visit in enumerate(self.visits):
            if visit in self.may_omit and (self.prices.nats > 0 or not covered[row]):
                costs[row] = self.prices.nats * self.may_omit[visit]
        return costs

    def route(self, owners: Sequence[int], order: Order) -> Route:
        """The route in which node `owners[i]` runs visit i; in any order, all visits of a node are one leg."""
        legs: list[tuple[int, list[RemoteVisit]]] = []
        for visit, owner in zip(self.visits, owners, strict=True):
            if owner == OMITTED:
                continue
            same = [run for node, run in (legs if order == "any" else legs[-1:]) if node == owner]
            if same:
                same[0].append(visit)
            else:
                legs.append((owner, [visit]))
        seconds = joules = life = 0.0
        for owner, run in legs:
            offer = self.offers[owner]
            busy = sum(offer.layer_seconds + self.extra.get((offer.node, visit), 0.0) for visit in run)
            seconds += offer.hop_latency + busy
            joules += offer.joules_per_hop + offer.watts * busy
            life += offer.life_per_second * busy
        omitted = tuple(visit for visit, owner in zip(self.visits, owners, strict=True) if owner == OMITTED)
        nats = sum((self.may_omit[visit] for visit in omitted), 0.0)
        named = tuple(Leg(self.offers[owner].node, tuple(run)) for owner, run in legs)
        return Route(named, omitted, self.prices.of(seconds, joules, life, nats), seconds, joules, life, nats)
