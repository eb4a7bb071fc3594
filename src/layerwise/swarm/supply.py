"""What the nodes hold: filled when the swarm is gathered, and balanced again when nodes leave or join."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from layerwise.errors import SwarmError
from layerwise.plan import Plan
from layerwise.plan.quantised import refuse_quantised_layers
from layerwise.stack import Stack
from layerwise.swarm.live_plan import layers_of
from layerwise.swarm.messages import Done, RemoteLayer, Transport, UnloadLayers
from layerwise.swarm.node_records import NodeRecord, NodeRecords
from layerwise.swarm.nodes.blocks import byte_count, load_message
from layerwise.swarm.placement import assign, rebalance
from layerwise.swarm.replication import Capacity, Demand

UNLIMITED = 2**62
"""The memory of a node of which nothing else is known, in bytes."""

HOLD_SECONDS = 600.0
"""Seconds in which a node has to take up the layers of a message."""

MESSAGE_BYTES = 2**27
"""The weights in a message, where that is more than one layer: the router has no more of them in memory for a node."""


class Supply:
    """The weights of a model, and who is to hold which of its layers.

    `replicas` copies of every layer that `plan` visits are wanted, of the most important layers first where memory does
    not suffice. Layers of other models that `Stack.with_sources` put within reach are held beside those of the same
    number.
    """

    def __init__(
        self,
        stack: Stack,
        plan: Plan,
        capacities: Sequence[Capacity],
        replicas: int = 2,
        importance: Mapping[int, float] | None = None,
    ) -> None:
        refuse_quantised_layers(plan, "serve a model")
        self.stack, self.plan = stack, plan
        self.capacities = {capacity.name: capacity for capacity in capacities}
        visited = layers_of(plan)
        self._others = tuple(source for source in stack.sources if not any(layer.source for layer in visited))
        sizes = {
            layer: byte_count(stack.block(layer.number, layer.source or None)) * (1 + len(self._others))
            for layer in visited
        }
        self._demand = Demand(visited, sizes, replicas, importance or {})
        self.placement = assign(self._demand, capacities)

    def held(self, node: str) -> tuple[RemoteLayer, ...]:
        """The layers that a node is to hold, those of other models among them."""
        return self._with_others(self.placement[node])

    async def fill(self, transport: Transport, members: NodeRecords) -> None:
        """Send every node its layers. Raises `SwarmError` where one cannot take them."""
        await asyncio.gather(*(self._hold(transport, node, self.held(node)) for node in self.placement))
        for node in self.placement:
            members.join(self.capacities[node], self.held(node))

    async def fill_again(self, transport: Transport, member: NodeRecord) -> None:
        """Send a node that lacks some of the layers that it is relied on for all of them. Raises as `fill` does."""
        await self._hold(transport, member.name, sorted(member.layers))

    async def balance(self, transport: Transport, members: NodeRecords) -> bool:
        """Let the nodes that are there hold what others no longer do; whether anything moved.

        Nodes that are not live count for nothing. Without room for one copy of each layer nothing moves.
        """
        there = [each for name, each in self.capacities.items() if members[name].state == "live"]
        try:
            moves = rebalance(self.placement, self._demand, there)
        except SwarmError as error:
            members.note("degraded", f"no room for every layer on the nodes that are left: {error}")
            return False
        held = await asyncio.gather(
            *(self._hold(transport, node, self._with_others(layers)) for node, layers in moves.hold.items()),
            return_exceptions=True,
        )
        done = {node for node, result in zip(moves.hold, held, strict=True) if result is None}
        for node in sorted(done | (moves.drop.keys() - moves.hold.keys())):
            layers = self._with_others(moves.after[node])
            members[node].layers = frozenset(layers)
            if node in done:
                members.note("joined", f"{node} holds {len(moves.hold[node])} more layers", node=node)
        for node, layers in moves.drop.items():
            await transport.call(node, [UnloadLayers(self._with_others(layers))])
        self.placement = moves.after
        return bool(moves.hold or moves.drop)

    def _with_others(self, layers: Sequence[RemoteLayer]) -> tuple[RemoteLayer, ...]:
        return (*layers, *(RemoteLayer(layer.number, source) for source in self._others for layer in layers))

    async def _hold(self, transport: Transport, node: str, layers: Sequence[RemoteLayer]) -> None:
        """Send a node the weights of these layers, so much of them at a time as one message may have."""
        for source, numbers in self._messages(layers):
            stack = self.stack.sources[source] if source else self.stack
            async with asyncio.timeout(HOLD_SECONDS):
                message = load_message(stack, numbers, source, halves=self.plan.has_sublayers())
                (response,) = await transport.call(node, [message])
            if not isinstance(response, Done):
                raise SwarmError(f"{node} cannot hold layers {numbers}: {response}")

    def _messages(self, layers: Sequence[RemoteLayer]) -> Iterator[tuple[str, list[int]]]:
        """The layers of each message: those of one model, more than one only within the bytes of a message."""
        for source, group in groupby(sorted(layers, key=lambda layer: layer.source), key=lambda layer: layer.source):
            numbers: list[int] = []
            bytes_of_message = 0
            for layer in group:
                size = byte_count(self.stack.block(layer.number, source or None))
                if numbers and bytes_of_message + size > MESSAGE_BYTES:
                    yield source, numbers
                    numbers, bytes_of_message = [], 0
                numbers.append(layer.number)
                bytes_of_message += size
            yield source, numbers
