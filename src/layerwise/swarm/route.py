"""The fastest route of a request through the nodes. Consecutive visits on one node are one leg and cost one hop.

Hops that wait at a node count as visits to all its layers, so that a busy node costs more.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from layerwise.swarm.messages import RemoteLayer, RemoteVisit


@dataclass(frozen=True, slots=True)
class Offer:
    """A live node and its layers: seconds per hop and per layer, and the hops `waiting` or under way."""

    node: str
    layers: frozenset[RemoteLayer]
    hop_seconds: float
    layer_seconds: float
    waiting: int = 0

    @property
    def hop_latency(self) -> float:
        return self.hop_seconds + self.waiting * len(self.layers) * self.layer_seconds


@dataclass(frozen=True, slots=True)
class Leg:
    node: str
    visits: tuple[RemoteVisit, ...]


@dataclass(frozen=True, slots=True)
class Uncovered:
    """There is no route: no live node holds the layers of these visits."""

    visits: tuple[RemoteVisit, ...]


def cheapest(visits: Sequence[RemoteVisit], offers: Collection[Offer]) -> tuple[Leg, ...] | Uncovered:
    """Return the legs of the fastest route through `visits`, by dynamic programming over (visit, last node)."""
    nodes = sorted(offers, key=lambda offer: offer.node)
    seconds = np.full((len(visits), len(nodes)), np.inf)
    for column, offer in enumerate(nodes):
        for row, visit in enumerate(visits):
            if visit.layer in offer.layers:
                seconds[row, column] = offer.layer_seconds
    covered = np.isfinite(seconds).any(axis=1)
    if not covered.all():
        return Uncovered(tuple(visit for visit, has_node in zip(visits, covered, strict=True) if not has_node))
    if not visits:
        return ()
    entering = np.array([offer.hop_latency for offer in nodes])
    value = entering + seconds[0]
    origins = []
    for run in seconds[1:]:
        best = int(np.argmin(value))
        stays = value <= value[best] + entering
        origins.append(np.where(stays, np.arange(len(nodes)), best))
        value = np.where(stays, value, value[best] + entering) + run
    owners = [int(np.argmin(value))]
    for origin in reversed(origins):
        owners.append(int(origin[owners[-1]]))
    legs: list[tuple[int, list[RemoteVisit]]] = []
    for visit, owner in zip(visits, reversed(owners), strict=True):
        if legs and legs[-1][0] == owner:
            legs[-1][1].append(visit)
        else:
            legs.append((owner, [visit]))
    return tuple(Leg(nodes[owner].node, tuple(run)) for owner, run in legs)
