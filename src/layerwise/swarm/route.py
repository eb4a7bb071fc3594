"""Which node runs which layers of a request: the cheapest route, by what latency, nats and energy cost.

Pure functions of values. What a node asks for a hop is in its `Offer`; what the user pays for each of the three is in
`Prices`. Consecutive visits on one node are one leg, which costs one hop. Hops that wait at a node run first, each
taken to visit every layer that the node holds, so that a busy node is dearer. The nats of several visits left out are
taken to add up; what they cost together, `layerwise.swarm.estimate` says.

The searches for the cheapest owner of every visit run on arrays. Each takes what a hop to a node costs (nodes,), what a
visit costs there (visits, nodes) and what leaving it out costs (visits,), infinite where that cannot be. It returns the
node that runs each visit, by number, or `OMITTED`. Every visit has a finite cost somewhere.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from layerwise.errors import SwarmError
from layerwise.swarm.messages import RemoteLayer, RemoteVisit

Order: TypeAlias = Literal["fixed", "any"]
"""Whether a model runs its layers in its own order, or was trained to run them in any."""

EXACT = 12
"""Visits in any order for which the cheapest route is searched exactly, over all their subsets."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A live node: the layers that it holds and what they take there.

    `hop_seconds` is a message there and back without the layers, `layer_seconds` one layer evaluation, `watts` what
    the device draws while it computes, and `waiting` the hops under way or queued at the node.
    """

    node: str
    layers: frozenset[RemoteLayer]
    hop_seconds: float
    layer_seconds: float
    watts: float = 0.0
    waiting: int = 0

    @property
    def hop_latency(self) -> float:
        """The seconds that a hop takes beside its own layers."""
        return self.hop_seconds + self.waiting * len(self.layers) * self.layer_seconds


@dataclass(frozen=True, slots=True)
class Prices:
    """The weight of a second, of a nat per token and of a joule.

    Without a price of nats, quality is not for sale: a visit that a node offers is never left out to save the others.
    """

    latency: float = 1.0
    nats: float = 0.0
    energy: float = 0.0

    def __post_init__(self) -> None:
        for name in ("latency", "nats", "energy"):
            price = getattr(self, name)
            if not 0 <= price < inf:
                raise SwarmError(f"the price of {name} is a number from 0, not {price!r}")

    def visit(self, offer: Offer, replay: float) -> float:
        """What one visit at a node costs, where the node must first compute for `replay` seconds."""
        return (self.latency + self.energy * offer.watts) * (offer.layer_seconds + replay)


@dataclass(frozen=True, slots=True)
class Leg:
    """What one hop runs."""

    node: str
    visits: tuple[RemoteVisit, ...]


@dataclass(frozen=True, slots=True)
class Route:
    """The legs in turn, the visits that nobody runs, and what all of it costs."""

    legs: tuple[Leg, ...]
    omitted: tuple[RemoteVisit, ...]
    cost: float


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
    replay: Replay | None = None,
    may_omit: Mapping[RemoteVisit, float] | None = None,
) -> Route | Uncovered:
    """The route of least cost through `visits`.

    `may_omit` says of each visit that may be left out what that costs, in nats per token; it is left out where there
    is a price of nats and that is cheaper, or nobody offers it.

    In a fixed order the route is exact. In any order it is exact up to `EXACT` visits and greedy beyond (see `greedy`
    for the rule); its legs stand in the order of their first visits.
    """
    nodes = sorted(offers, key=lambda offer: offer.node)
    hops = np.array([prices.latency * offer.hop_latency for offer in nodes])
    runs = np.full((len(visits), len(nodes)), np.inf)
    for column, offer in enumerate(nodes):
        for row, visit in enumerate(visits):
            if visit.layer in offer.layers:
                runs[row, column] = prices.visit(offer, (replay or {}).get((offer.node, visit), 0.0))
    sold = (may_omit or {}) if prices.nats else {}
    omissions = np.array([prices.nats * sold[visit] if visit in sold else np.inf for visit in visits])
    possible = np.isfinite(np.minimum(runs.min(axis=1, initial=np.inf), omissions))
    if not possible.all():
        return Uncovered(tuple(visit for visit, can in zip(visits, possible, strict=True) if not can))
    search = in_order if order == "fixed" else over_subsets if len(visits) <= EXACT else greedy
    owners = search(hops, runs, omissions)
    legs: list[tuple[int, list[RemoteVisit]]] = []
    for visit, owner in zip(visits, owners, strict=True):
        if owner == OMITTED:
            continue
        same = [run for node, run in (legs if order == "any" else legs[-1:]) if node == owner]
        if same:
            same[0].append(visit)
        else:
            legs.append((owner, [visit]))
    cost = sum(omissions[row] if owner == OMITTED else runs[row, owner] for row, owner in enumerate(owners))
    return Route(
        tuple(Leg(nodes[owner].node, tuple(run)) for owner, run in legs),
        tuple(visit for visit, owner in zip(visits, owners, strict=True) if owner == OMITTED),
        float(cost + sum(hops[owner] for owner, _ in legs)),
    )


def next_leg(visits: Sequence[RemoteVisit], offers: Collection[Offer], prices: Prices) -> Leg | Uncovered:
    """Which node runs which of some visits first, where any order will do.

    It is the leg of the cheapest route whose node has the fewest hops waiting: the other queues grow shorter meanwhile.
    """
    route = cheapest(visits, offers, prices, "any")
    if isinstance(route, Uncovered):
        return route
    waiting = {offer.node: offer.waiting for offer in offers}
    return min(route.legs, key=lambda leg: waiting[leg.node])


OMITTED = -1
"""The number of the node that runs a visit which nobody runs."""

Costs: TypeAlias = NDArray[np.float64]


def in_order(hops: Costs, runs: Costs, omissions: Costs) -> list[int]:
    """The owners of visits in their order: a dynamic programme over (visit, node that ran last).

    A visit left out does not end the leg that is under way.
    """
    start = len(hops)  # one more node, which is where no node has run yet
    value = np.append(np.full(start, np.inf), 0.0)
    entering = np.append(hops, np.inf)
    choices: list[tuple[NDArray[np.intp], NDArray[np.bool_]]] = []
    for run, omission in zip(np.pad(runs, ((0, 0), (0, 1)), constant_values=np.inf), omissions, strict=True):
        best = int(np.argmin(value))
        stays = value <= value[best] + entering
        entered = np.where(stays, value, value[best] + entering) + run
        left_out = value + omission < entered
        choices.append((np.where(left_out | stays, np.arange(start + 1), best), left_out))
        value = np.where(left_out, value + omission, entered)
    last = int(np.argmin(value))
    owners: list[int] = []
    for before, left_out in reversed(choices):
        owners.append(OMITTED if left_out[last] else last)
        last = int(before[last])
    return owners[::-1]


def over_subsets(hops: Costs, runs: Costs, omissions: Costs) -> list[int]:
    """The owners of visits in any order: a dynamic programme over the subsets of visits covered so far.

    Since a node needs no second hop where the order is free, nodes are added one after another, and each covers some
    of what those before it left. This takes time in proportion to 2^visits times the layers held.
    """
    count = len(omissions)
    value = np.where(np.arange(1 << count) == 0, 0.0, np.inf)
    owners = np.full((1 << count, count), OMITTED)
    _add(value, owners, omissions, OMITTED)
    for node, hop in enumerate(hops):
        entered, entered_owners = value + hop, owners.copy()
        _add(entered, entered_owners, runs[:, node], node)
        better = entered < value
        value[better], owners[better] = entered[better], entered_owners[better]
    return [int(owner) for owner in owners[-1]]


def _add(value: Costs, owners: NDArray[np.int64], runs: Costs, node: int) -> None:
    """Change the least costs and the owners by subset to what they are when `node` may run any of the visits too."""
    subsets = np.arange(len(value))
    for visit in np.flatnonzero(np.isfinite(runs)):
        without = subsets[subsets & (1 << visit) == 0]
        better = without[value[without] + runs[visit] < value[without | (1 << visit)]]
        covered = better | (1 << visit)
        value[covered], owners[covered] = value[better] + runs[visit], owners[better]
        owners[covered, visit] = node


def greedy(hops: Costs, runs: Costs, omissions: Costs) -> list[int]:
    """The owners of visits in any order, by a rule: take the node, or the omission, with the least cost per visit.

    A node's cost per visit counts its hop and those of the visits left, cheapest first, that make the ratio least; a
    node once taken is entered already. At the end every visit moves to the cheapest of the nodes taken.
    """
    left = np.ones(len(omissions), dtype=bool)
    entering = hops.copy()
    nodes: set[int] = set()
    while left.any():
        rows = np.flatnonzero(left)
        rates = np.cumsum(np.sort(runs[rows], axis=0), axis=0) + entering
        rates /= np.arange(1, len(rows) + 1)[:, None]
        omission = int(rows[np.argmin(omissions[rows])])
        if not rates.size or rates.min() > omissions[omission]:
            left[omission] = False
            continue
        several, node = (int(each) for each in np.unravel_index(int(np.argmin(rates)), rates.shape))
        left[rows[np.argsort(runs[rows, node], kind="stable")[: several + 1]]] = False
        entering[node] = 0.0
        nodes.add(node)
    known = sorted(nodes)
    best = np.where(np.isin(np.arange(len(hops)), known), runs, np.inf)
    best = np.pad(best, ((0, 0), (0, 1)), constant_values=np.inf)  # a node that runs nothing, where none is taken
    is_run = best.min(axis=1) <= omissions
    return [int(owner) for owner in np.where(is_run, best.argmin(axis=1), OMITTED)]
