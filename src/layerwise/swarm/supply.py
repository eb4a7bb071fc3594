"""Placement of layers on nodes, and delivery of their weights."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from typing import TypeAlias

from layerwise.errors import SwarmError
from layerwise.plan import Plan
from layerwise.plan.checks import refuse_quantized_layers
from layerwise.stack import Stack
from layerwise.swarm.messages import Done, RemoteLayer, Transport
from layerwise.swarm.node_records import NodeRecord, NodeRecords
from layerwise.swarm.nodes.blocks import byte_count, load_message
from layerwise.swarm.request import find_layers

Placement: TypeAlias = Mapping[str, tuple[RemoteLayer, ...]]
"""The layers of every node, in the order of the model."""

DISTANT_FACTOR = 1.5
"""Penalty for placing a layer on a node that holds neither neighbor, since this usually costs an extra call."""


def assign_layers(layers: Sequence[RemoteLayer], nodes: Sequence[str], replicas: int) -> Placement:
    """Assign `replicas` copies of every layer to different nodes.

    The sequence of all copies is cut into one contiguous run per node, of about equal length (McNaughton's rule).
    Raises `SwarmError` if there are no nodes or `replicas` is below 1.

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
    """Return the layers that each node must load so that the `live` nodes hold `replicas` copies of every layer.

    Each copy goes to the node with the fewest layers. If a node holds neither neighbor of the layer, its layers count
    `DISTANT_FACTOR` times.
    """
    held = {name: set(node_layers) for name, node_layers in live.items()}
    added: dict[str, list[RemoteLayer]] = {name: [] for name in live}
    for copy in range(1, min(replicas, len(live)) + 1):
        for layer in layers:
            if sum(layer in node_layers for node_layers in held.values()) >= copy:
                continue
            neighbors = {RemoteLayer(layer.number + step, layer.source) for step in (-1, 1)}
            name = min(
                (name for name, node_layers in held.items() if layer not in node_layers),
                key=lambda name: (len(held[name]) + 1) * (1 if neighbors & held[name] else DISTANT_FACTOR),
            )
            held[name].add(layer)
            added[name].append(layer)
    return {name: tuple(new) for name, new in added.items() if new}


LOAD_SECONDS = 600.0

MAX_MESSAGE_BYTES = 2**27
"""Maximum bytes of weights in a message with more than one layer, which limits the memory of the router."""


class Supply:
    """Places `replicas` copies of every layer of `plan` on different nodes and sends their weights.

    If the plan uses no layers of the other models in `Stack.with_sources`, each node also gets the layers of these
    models with the same numbers, as replacements.
    """

    def __init__(self, stack: Stack, plan: Plan, nodes: Sequence[str], replicas: int = 2) -> None:
        refuse_quantized_layers(plan, "serve a model")
        self.stack, self.plan, self.replicas = stack, plan, replicas
        self._layers = find_layers(plan)
        self._others = tuple(source for source in stack.sources if not any(layer.source for layer in self._layers))
        self.placement = assign_layers(self._layers, nodes, replicas)

    def layers_on(self, node: str) -> tuple[RemoteLayer, ...]:
        return self._add_replacements(self.placement[node])

    async def load_nodes(self, transport: Transport, members: NodeRecords) -> None:
        """Send every node its layers. Raises `SwarmError` if a node cannot load them."""
        await asyncio.gather(*(self._send(transport, node, self.layers_on(node)) for node in self.placement))
        for node in self.placement:
            members.join(node, self.layers_on(node))

    async def reload(self, transport: Transport, member: NodeRecord) -> None:
        """Send a node all its layers again. Raises `SwarmError` if it cannot load them."""
        await self._send(transport, member.name, sorted(member.layers))

    async def reassign_missing(self, transport: Transport, members: NodeRecords) -> None:
        live = {member.name: tuple(member.layers) for member in members.live()}
        added = assign_missing(self._layers, live, self.replicas)
        results = await asyncio.gather(
            *(self._send(transport, node, self._add_replacements(layers)) for node, layers in added.items()),
            return_exceptions=True,
        )
        for (node, layers), result in zip(added.items(), results, strict=True):
            if result is None:
                members[node].layers |= set(self._add_replacements(layers))
                members.note("joined", f"{node} holds {len(layers)} more layers", node=node)

    def _add_replacements(self, layers: Sequence[RemoteLayer]) -> tuple[RemoteLayer, ...]:
        return (*layers, *(RemoteLayer(layer.number, source) for source in self._others for layer in layers))

    async def _send(self, transport: Transport, node: str, layers: Sequence[RemoteLayer]) -> None:
        for source, numbers in self._split_messages(layers):
            stack = self.stack.sources[source] if source else self.stack
            async with asyncio.timeout(LOAD_SECONDS):
                message = load_message(stack, numbers, source, sublayers=self.plan.has_sublayers())
                (response,) = await transport.call(node, [message])
            if not isinstance(response, Done):
                raise SwarmError(f"{node} could not load layers {numbers}: {response}")

    def _split_messages(self, layers: Sequence[RemoteLayer]) -> Iterator[tuple[str, list[int]]]:
        for source, group in groupby(sorted(layers, key=lambda layer: layer.source), key=lambda layer: layer.source):
            numbers: list[int] = []
            message_bytes = 0
            for layer in group:
                size = byte_count(self.stack.block(layer.number, source or None))
                if numbers and message_bytes + size > MAX_MESSAGE_BYTES:
                    yield source, numbers
                    numbers, message_bytes = [], 0
                numbers.append(layer.number)
                message_bytes += size
            yield source, numbers
