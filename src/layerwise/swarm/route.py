"""The fastest route of a request through the nodes. Consecutive visits on one node are one leg and cost one hop.

Hops that wait at a node count as visits to all its layers, so that a busy node costs more.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from layerwise.swarm.messages import RemoteVisit
from layerwise.swarm.node_records import NodeRecord


@dataclass(frozen=True, slots=True)
class Leg:
    node: str
    visits: tuple[RemoteVisit, ...]


@dataclass(frozen=True, slots=True)
class Uncovered:
    """There is no route: no live node holds the layers of these visits."""

    visits: tuple[RemoteVisit, ...]


def cheapest(visits: Sequence[RemoteVisit], records: Collection[NodeRecord], now: float) -> tuple[Leg, ...] | Uncovered:
    """Return the legs of the fastest route through `visits`, by dynamic programming over (visit, last node)."""
    nodes = sorted(records, key=lambda record: record.name)
    seconds = np.full((len(visits), len(nodes)), np.inf)
    for column, record in enumerate(nodes):
        for row, visit in enumerate(visits):
            if visit.layer in record.layers:
                seconds[row, column] = record.layer_seconds
    covered = np.isfinite(seconds).any(axis=1)
    if not covered.all():
        return Uncovered(tuple(visit for visit, has_node in zip(visits, covered, strict=True) if not has_node))
    if not visits:
        return ()
    entering = np.array([record.hop_latency(now) for record in nodes])
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
    return tuple(Leg(nodes[owner].name, tuple(run)) for owner, run in legs)
