"""Placement: which node holds which layers, so that a request needs few hops and a failed node loses no layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TypeAlias

from layerwise.errors import SwarmError
from layerwise.swarm.messages import RemoteLayer

Placement: TypeAlias = Mapping[str, tuple[RemoteLayer, ...]]
"""The layers of every node, in the order of the model."""

APART = 1.5
"""How much more a layer counts at a node that holds neither of its neighbors: it probably needs another hop."""


def assign_layers(layers: Sequence[RemoteLayer], nodes: Sequence[str], replicas: int) -> Placement:
    """Assign `replicas` copies of every layer to the nodes, each copy to another node.

    The row of all copies is cut into runs of equal length, at most one model long, one per node (McNaughton's rule).
    Raises `SwarmError` without any node or replica.

    >>> assign_layers([RemoteLayer(0), RemoteLayer(1)], ["a", "b"], 1)
    {'a': (RemoteLayer(number=0, source=''),), 'b': (RemoteLayer(number=1, source=''),)}
    """
    count = len(nodes)
    if count < 1 or replicas < 1:
        raise SwarmError(f"nodes and replicas must be at least 1, got {count} and {replicas}.")
    row = [*layers] * min(replicas, count)
    cuts = [(2 * len(row) * number + count) // (2 * count) for number in range(count + 1)]
    runs = [set(row[start:stop]) for start, stop in pairwise(cuts)]
    return {name: tuple(each for each in layers if each in run) for name, run in zip(nodes, runs, strict=True)}


def assign_missing(layers: Sequence[RemoteLayer], live: Placement, replicas: int) -> Placement:
    """Return the layers that each `live` node must add: each copy goes to the node with the fewest.

    Nodes that hold neither neighbor of the layer count as having `APART` times as many.
    """
    held = {name: set(own) for name, own in live.items()}
    added: dict[str, list[RemoteLayer]] = {name: [] for name in live}
    for copy in range(1, min(replicas, len(live)) + 1):
        for layer in layers:
            if sum(layer in own for own in held.values()) >= copy:
                continue
            neighbors = {RemoteLayer(layer.number + step, layer.source) for step in (-1, 1)}
            name = min(
                (name for name, own in held.items() if layer not in own),
                key=lambda name: (len(held[name]) + 1) * (1 if neighbors & held[name] else APART),
            )
            held[name].add(layer)
            added[name].append(layer)
    return {name: tuple(own) for name, own in added.items() if own}
