"""What the nodes hold: sent when the swarm is gathered, and to other nodes when some stay away."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from itertools import groupby

from layerwise.errors import SwarmError
from layerwise.plan import Plan
from layerwise.plan.checks import refuse_quantized_layers
from layerwise.stack import Stack
from layerwise.swarm.live_plan import layers_of
from layerwise.swarm.messages import Done, RemoteLayer, Transport
from layerwise.swarm.node_records import NodeRecord, NodeRecords
from layerwise.swarm.nodes.blocks import byte_count, load_message
from layerwise.swarm.placement import assign_layers, assign_missing

HOLD_SECONDS = 600.0
"""Seconds in which a node has to take up the layers of a message."""

MESSAGE_BYTES = 2**27
"""The weights in a message, where that is more than one layer: the router has no more of them in memory for a node."""


class Supply:
    """The weights of a model and their placement: `replicas` copies of every layer of `plan`, each on another node.

    Layers of the other models in `Stack.with_sources` are held together with those of the same number.
    """

    def __init__(self, stack: Stack, plan: Plan, nodes: Sequence[str], replicas: int = 2) -> None:
        refuse_quantized_layers(plan, "serve a model")
        self.stack, self.plan, self.replicas = stack, plan, replicas
        self._layers = layers_of(plan)
        self._others = tuple(source for source in stack.sources if not any(layer.source for layer in self._layers))
        self.placement = assign_layers(self._layers, nodes, replicas)

    def held(self, node: str) -> tuple[RemoteLayer, ...]:
        return self._with_others(self.placement[node])

    async def fill(self, transport: Transport, members: NodeRecords) -> None:
        """Send every node its layers. Raises `SwarmError` where one cannot take them."""
        await asyncio.gather(*(self._hold(transport, node, self.held(node)) for node in self.placement))
        for node in self.placement:
            members.join(node, self.held(node))

    async def fill_again(self, transport: Transport, member: NodeRecord) -> None:
        """Send a node that lacks some of the layers that it is relied on for all of them. Raises as `fill` does."""
        await self._hold(transport, member.name, sorted(member.layers))

    async def reassign_missing(self, transport: Transport, members: NodeRecords) -> None:
        live = {member.name: tuple(member.layers) for member in members.live()}
        added = assign_missing(self._layers, live, self.replicas)
        results = await asyncio.gather(
            *(self._hold(transport, node, self._with_others(layers)) for node, layers in added.items()),
            return_exceptions=True,
        )
        for (node, layers), result in zip(added.items(), results, strict=True):
            if result is None:
                members[node].layers |= set(self._with_others(layers))
                members.note("joined", f"{node} holds {len(layers)} more layers", node=node)

    def _with_others(self, layers: Sequence[RemoteLayer]) -> tuple[RemoteLayer, ...]:
        return (*layers, *(RemoteLayer(layer.number, source) for source in self._others for layer in layers))

    async def _hold(self, transport: Transport, node: str, layers: Sequence[RemoteLayer]) -> None:
        for source, numbers in self._messages(layers):
            stack = self.stack.sources[source] if source else self.stack
            async with asyncio.timeout(HOLD_SECONDS):
                message = load_message(stack, numbers, source, halves=self.plan.has_sublayers())
                (response,) = await transport.call(node, [message])
            if not isinstance(response, Done):
                raise SwarmError(f"{node} cannot hold layers {numbers}: {response}")

    def _messages(self, layers: Sequence[RemoteLayer]) -> Iterator[tuple[str, list[int]]]:
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
