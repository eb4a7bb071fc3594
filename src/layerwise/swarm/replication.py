"""Copies of layers on nodes, changed one at a time: what `layerwise.swarm.placement` is made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from layerwise.errors import SwarmError
from layerwise.swarm.messages import RemoteLayer

APART = 1.5
"""How much more a layer counts at a node that holds neither of its neighbours: it is likely to need a hop more."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """What a node offers: bytes for weights, and its speed in layers per second or any other unit."""

    name: str
    bytes: int
    speed: float = 1.0

    def __post_init__(self) -> None:
        if not (self.bytes >= 0 and 0 < self.speed < float("inf")):
            raise SwarmError(f"node {self.name} offers bytes from 0 and a speed above 0, not {self}")


@dataclass(frozen=True, slots=True)
class Demand:
    """The layers in their order, what each takes, how many copies are wanted, and which layers matter most."""

    layers: Sequence[RemoteLayer]
    layer_bytes: Mapping[RemoteLayer, int]
    replicas: int = 2
    importance: Mapping[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.replicas < 1:
            raise SwarmError(f"every layer has at least 1 replica, not {self.replicas}")

    def by_importance(self) -> list[RemoteLayer]:
        """The layers, the most important first; of equal ones the earlier in the model."""
        return sorted(self.layers, key=lambda layer: -self.weight(layer))

    def weight(self, layer: RemoteLayer) -> float:
        """How important a layer is."""
        return self.importance.get(layer.number, 0.0)


class Draft:
    """Which node holds which layers while a placement is being made; never more than its memory takes."""

    def __init__(
        self, demand: Demand, capacities: Sequence[Capacity], held: Mapping[str, Sequence[RemoteLayer]] | None = None
    ) -> None:
        wanted = set(demand.layers)
        self.demand = demand
        self.capacities = {each.name: each for each in capacities}
        self.held: dict[str, set[RemoteLayer]] = {
            name: {layer for layer in (held or {}).get(name, ()) if layer in wanted} for name in self.capacities
        }
        self.copies = {layer: sum(layer in each for each in self.held.values()) for layer in demand.layers}
        for name in self.capacities:
            while self.room(name) < 0:
                self.drop(name, min(self.held[name], key=lambda layer: (-self.copies[layer], demand.weight(layer))))

    def room(self, node: str) -> int:
        """The bytes that are free at a node."""
        return self.capacities[node].bytes - sum(self.demand.layer_bytes[layer] for layer in self.held[node])

    def can_hold(self, node: str, layer: RemoteLayer) -> bool:
        """Whether a node has no copy of a layer yet, and the memory for one."""
        return layer not in self.held[node] and self.room(node) >= self.demand.layer_bytes[layer]

    def hold(self, node: str, layer: RemoteLayer) -> None:
        """Add a copy."""
        self.held[node].add(layer)
        self.copies[layer] += 1

    def drop(self, node: str, layer: RemoteLayer) -> None:
        """Take a copy away."""
        self.held[node].remove(layer)
        self.copies[layer] -= 1

    def load(self, node: str, more: int = 0) -> float:
        """How long a node takes for all its layers, and so many more."""
        return (len(self.held[node]) + more) / self.capacities[node].speed

    def is_beside(self, node: str, layer: RemoteLayer) -> bool:
        """Whether a node holds a neighbour of a layer."""
        return any(RemoteLayer(layer.number + step, layer.source) in self.held[node] for step in (-1, 1))

    def complete(self) -> None:
        """Add the copies that are wanted and fit: first one of every layer, then the second ones, and so on.

        Within each round the most important layers come first, and may take the memory of copies that are less
        needed. Raises `SwarmError` if a layer has no copy at the end.
        """
        has_changed = True
        while has_changed:
            has_changed = False
            for layer, number in self._wanted():
                has_changed |= self._add(layer, number)
        if without := [layer for layer in self.demand.layers if not self.copies[layer]]:
            raise SwarmError(self._lacking(without))

    def _wanted(self) -> Iterator[tuple[RemoteLayer, int]]:
        layers = self.demand.by_importance()
        for number in range(1, min(self.demand.replicas, len(self.capacities)) + 1):
            yield from ((layer, number) for layer in layers if self.copies[layer] < number)

    def _add(self, layer: RemoteLayer, number: int) -> bool:
        """Add the copy of this number if there is memory for it, or memory can be made; whether it was added."""
        nodes = [node for node in self.capacities if self.can_hold(node, layer)] or self._emptied(layer, number)
        if not nodes:
            return False
        self.hold(
            min(nodes, key=lambda node: self.load(node, 1) * (1 if self.is_beside(node, layer) else APART)), layer
        )
        return True

    def _emptied(self, layer: RemoteLayer, number: int) -> list[str]:
        """A node that can hold the layer after less needed copies were dropped, or for a first copy moved elsewhere."""
        needed = self.demand.layer_bytes[layer]
        for node in sorted(self.capacities, key=self.load):
            if layer in self.held[node]:
                continue
            spare = sorted(
                (each for each in self.held[node] if self._is_less_needed(each, layer, number)),
                key=lambda each: (-self.copies[each], self.demand.weight(each), each),
            )
            dropped: list[RemoteLayer] = []
            while spare and needed > self.room(node) + sum(self.demand.layer_bytes[each] for each in dropped):
                dropped.append(spare.pop(0))
            if needed <= self.room(node) + sum(self.demand.layer_bytes[each] for each in dropped):
                for each in dropped:
                    self.drop(node, each)
                return [node]
        return self._moved(layer) if number == 1 else []

    def _is_less_needed(self, other: RemoteLayer, layer: RemoteLayer, number: int) -> bool:
        left = self.copies[other] - 1
        return left >= number or (left == number - 1 >= 1 and self.demand.weight(other) < self.demand.weight(layer))

    def _moved(self, layer: RemoteLayer) -> list[str]:
        """A node that can hold the layer after one of its own was moved to a node with room for it."""
        for node in self.capacities:
            for own in sorted(self.held[node]):
                if self.room(node) + self.demand.layer_bytes[own] < self.demand.layer_bytes[layer]:
                    continue
                for other in self.capacities:
                    if other != node and self.can_hold(other, own):
                        self.drop(node, own)
                        self.hold(other, own)
                        return [node]
        return []

    def _lacking(self, without: Sequence[RemoteLayer]) -> str:
        needed = sum(self.demand.layer_bytes[layer] for layer in self.demand.layers)
        offered = sum(each.bytes for each in self.capacities.values())
        names = ", ".join(layer.name for layer in without[:8]) + ", ..." * (len(without) > 8)
        if offered < needed:
            return (
                f"the {len(self.demand.layers)} layers take {needed:,} bytes and the nodes offer {offered:,}: "
                f"{needed - offered:,} bytes are lacking. Add nodes or memory."
            )
        largest = max(self.demand.layer_bytes[layer] for layer in without)
        room = max((self.room(node) for node in self.capacities), default=0)
        return (
            f"the nodes offer {offered:,} bytes for layers that take {needed:,}, but in pieces that do not fit: layers "
            f"{names} are left, of up to {largest:,} bytes, and the most that is free on one node is {room:,}; at "
            f"least {largest - room:,} bytes are lacking there."
        )
