"""Placement: which node holds which layers, so that a request needs few hops and the death of a node loses no layer.

The copies of all layers are laid out in a row, one model after another, and cut into one run of consecutive layers per
node, as long as the node's speed asks for and its memory allows. No run is longer than the model, so that the copies
of a layer lie on different nodes (McNaughton's rule for schedules on several machines). Where memory does not suffice
for all copies, every layer has its first one before any has a second, and the most important layers come first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import floor
from typing import TypeAlias

from layerwise.swarm.messages import RemoteLayer
from layerwise.swarm.replication import Capacity, Demand, Draft

Placement: TypeAlias = Mapping[str, tuple[RemoteLayer, ...]]
"""The layers of every node, in the order of the model."""


@dataclass(frozen=True, slots=True)
class Moves:
    """What turns one placement into another: the layers that nodes are to hold, then those to drop, and the result.

    Nodes that have left drop nothing. Layers are held at their new nodes before they are dropped at the old ones.
    """

    hold: Mapping[str, tuple[RemoteLayer, ...]]
    drop: Mapping[str, tuple[RemoteLayer, ...]]
    after: Placement


def assign(demand: Demand, capacities: Sequence[Capacity]) -> Placement:
    """Where the layers lie: as many copies of each as are wanted, as far as memory goes, the most important first.

    Raises `SwarmError` with what memory is lacking if not even one copy of each fits.
    """
    draft = Draft(demand, capacities)
    _cut(draft)
    draft.complete()
    return _placement(draft)


def rebalance(placement: Placement, demand: Demand, capacities: Sequence[Capacity]) -> Moves:
    """What moves when nodes have left or joined: `capacities` are those of the nodes that there are now.

    Nodes keep what they hold. Copies that are missing are added, and a node that was not there before takes layers
    from those with more than their share for their speed. A swarm that has not changed moves nothing.
    """
    draft = Draft(demand, capacities, placement)
    joined = [name for name in draft.capacities if name not in placement]
    draft.complete()
    for name in joined:
        _relieve(draft, name)
    after = _placement(draft)
    hold, drop = {}, {}
    for name, held in after.items():
        before = placement.get(name, ())
        hold[name] = tuple(layer for layer in held if layer not in before)
        drop[name] = tuple(layer for layer in before if layer not in held)
    return Moves(
        {name: each for name, each in hold.items() if each}, {name: each for name, each in drop.items() if each}, after
    )


def _cut(draft: Draft) -> None:
    """Lay the copies out in a row and cut it into one run per node; what a node cannot hold is left out."""
    demand, nodes = draft.demand, list(draft.capacities.values())
    if not nodes or not demand.layers:
        return
    largest = max(1, max(demand.layer_bytes[layer] for layer in demand.layers))
    most = [min(len(demand.layers), node.bytes // largest) for node in nodes]
    shares = _shares([node.speed for node in nodes], most, min(demand.replicas, len(nodes)) * len(demand.layers))
    row = list(demand.layers)
    while len(row) < round(sum(shares)):
        chosen = set(demand.by_importance()[: round(sum(shares)) - len(row)])
        row.extend(layer for layer in demand.layers if layer in chosen)
    # Half of a layer is rounded up everywhere, so that no run is a whole layer longer or shorter than its share.
    cuts = [floor(cut + 0.5 + 1e-9) for cut in accumulate(shares, initial=0.0)]
    for node, (start, stop) in zip(nodes, pairwise(cuts), strict=True):
        for layer in row[start:stop]:
            if draft.can_hold(node.name, layer):
                draft.hold(node.name, layer)


def _shares(speeds: Sequence[float], most: Sequence[int], wanted: int) -> list[float]:
    """So many layers in proportion to the speeds, none above its most, and as many as fit in all.

    >>> _shares([1, 1, 2], [4, 1, 9], 8)
    [2.3333333333333335, 1.0, 4.666666666666667]
    """
    shares = [0.0] * len(speeds)
    open_ones, left = set(range(len(speeds))), float(min(wanted, sum(most)))
    while open_ones:
        unit = left / sum(speeds[number] for number in open_ones)
        full = {number for number in open_ones if speeds[number] * unit >= most[number]}
        for number in full or open_ones:
            shares[number] = float(most[number]) if full else speeds[number] * unit
        left -= sum(shares[number] for number in full)
        open_ones -= full or open_ones
    return shares


def _relieve(draft: Draft, name: str) -> None:
    """Give a node that has joined its share, from nodes with more than theirs, in as few runs of layers as it goes."""
    offers = [_taken(draft, name, start.number) for start in draft.demand.layers]
    for layer, node in min(offers, key=lambda taken: (-len(taken), _runs([layer for layer, _ in taken])), default=[]):
        draft.drop(node, layer)
        draft.hold(name, layer)


def _taken(draft: Draft, name: str, start: int) -> list[tuple[RemoteLayer, str]]:
    """The layers that a node takes, and from which nodes, if it begins near the layer `start`."""
    speeds = {node: each.speed for node, each in draft.capacities.items()}
    counts = {node: len(held) for node, held in draft.held.items()}
    fair = sum(counts.values()) / sum(speeds.values())
    room = draft.room(name)
    own, taken = set(draft.held[name]), list[tuple[RemoteLayer, str]]()
    while True:
        near = [layer.number for layer in own] or [start]
        least = max(fair, (counts[name] + 1) / speeds[name])
        options = [
            (min(abs(layer.number - each) for each in near), -counts[node] / speeds[node], layer, node)
            for node in counts
            if counts[node] / speeds[node] > least
            for layer in draft.held[node]
            if layer not in own and draft.demand.layer_bytes[layer] <= room and (layer, node) not in taken
        ]
        if not options:
            return taken
        *_, layer, node = min(options)
        own.add(layer)
        taken.append((layer, node))
        room -= draft.demand.layer_bytes[layer]
        counts[node] -= 1
        counts[name] += 1


def _runs(layers: Sequence[RemoteLayer]) -> int:
    """How many runs of consecutive layers these are."""
    return sum(RemoteLayer(layer.number - 1, layer.source) not in layers for layer in layers)


def _placement(draft: Draft) -> Placement:
    return {name: tuple(each for each in draft.demand.layers if each in held) for name, held in draft.held.items()}
