"""Health checks of nodes and spot checks of their results.

Spot checks detect faulty memory, wrong weights and other versions. They do not detect a malicious node that knows which
results are compared.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from layerwise.errors import SwarmError
from layerwise.stack import Capture, Stack
from layerwise.stack.inputs import example_inputs
from layerwise.swarm.calls import NodeClient
from layerwise.swarm.messages import Array, Refused, Release, Reply, RunLayers
from layerwise.swarm.node_records import NodeRecord
from layerwise.swarm.nodes.node import Node
from layerwise.swarm.request import SwarmRequest
from layerwise.swarm.supply import Supply
from layerwise.swarm.wire import agree, encode, to_tensor

ROUTER = ""
"""Name of the checker if the router runs its own copy of the layers."""

CHECK_EVERY = 8
"""One in this many requests of a node is checked: the result of its first pass is compared with another node's."""


class RestartNeededError(Exception):
    """Signals that all tokens of a request must be recomputed."""


class SpotChecks:
    """Compares a `share` of all results with those of a second node.

    If they differ, the router runs its own copy of the layers to find the wrong node, which is quarantined. If `share`
    is 0, nothing is compared.
    """

    def __init__(self, client: NodeClient, share: float, referee: Node) -> None:
        self.client, self.members = client, client.members
        self.share, self.referee = share, referee

    async def find_wrong_nodes(self, request: SwarmRequest, node: str, call: RunLayers, reply: Reply) -> frozenset[str]:
        """Return the nodes whose result of `call` is wrong.

        Raises `RestartNeededError` if all tokens must be recomputed to find these nodes.
        """
        call = replace(call, number=reply.number)
        if call.given.index:
            checker = request.checkers.get(call.visits)
            if checker is None:
                return frozenset()
            other = await self._run_checker(checker, call)
            if other is None:
                raise RestartNeededError
        else:
            number = self.members[node].requests
            self.members[node].requests += 1
            checks_all = request.uses_referee or random.Random(request.request).random() < self.share
            if not self.share or (number % CHECK_EVERY and not checks_all):
                return frozenset()
            checker, other = await self._find_checker(request, node, call)
            if checks_all:
                request.checkers[call.visits] = checker
        agrees = _is_same(call, reply.state, other)
        if agrees and (checker == ROUTER or any(reply.state.data)):  # two nodes may both return zeros
            return frozenset()
        if checker == ROUTER:
            wrong = {node}
        elif call.given.index:
            request.uses_referee = True
            raise RestartNeededError
        else:
            expected = self._run_referee(call)
            answers = ((node, reply.state), (checker, other))
            wrong = {name for name, state in answers if not _is_same(call, state, expected)}
        layers = f"layers {call.visits[0].layer.name} to {call.visits[-1].layer.name}"
        for name in sorted(wrong):
            reason = f"{name}: its output of {layers} differs from the router's output"
            self.members.change(name, "quarantined", "quarantined", reason)
        return frozenset(wrong)

    def release(self, request: SwarmRequest) -> None:
        self.referee.handle(Release(request.key))

    async def _find_checker(self, request: SwarmRequest, node: str, call: RunLayers) -> tuple[str, Array]:
        layers = [visit.layer for visit in call.visits]
        for other in [] if request.uses_referee else self.members.find_holders(layers, node):
            request.contacted.add(other)
            answer = await self._run_checker(other, call)
            if answer is not None:
                return other, answer
        return ROUTER, self._run_referee(call)

    async def _run_checker(self, checker: str, call: RunLayers) -> Array | None:
        if checker == ROUTER:
            return self._run_referee(call)
        response = await self.client.call(checker, call, lambda: True)
        return response.state if isinstance(response, Reply) else None

    def _run_referee(self, call: RunLayers) -> Array:
        response = self.referee.handle(call)
        if not isinstance(response, Reply):
            raise RuntimeError(f"The router's own layers failed: {response}")
        return response.state


def _is_same(call: RunLayers, one: Array, other: Array) -> bool:
    return agree(to_tensor(one), to_tensor(other), len(call.visits))


class HealthChecks:
    """Periodically checks idle nodes. If a node does not recover, its layers are sent to other nodes."""

    def __init__(self, client: NodeClient, supply: Supply) -> None:
        self._client = client
        self._supply = supply
        self._replaced: frozenset[str] = frozenset()
        self._away: dict[frozenset[str], float] = {}
        self._filling: set[str] = set()

    async def watch(self) -> None:
        client = self._client
        while True:
            await asyncio.sleep(client.settings.health_seconds)
            for member in client.members:
                if member.began is None and member.name not in self._filling:
                    client.start_task(self._check(member))
            await self._reassign_missing(asyncio.get_running_loop().time())

    async def _check(self, member: NodeRecord) -> None:
        response = await self._client.check(member)
        if not (isinstance(response, Refused) and response.lacks_layers) or member.name in self._filling:
            return
        self._filling.add(member.name)
        try:
            await self._supply.reload(self._client.transport, member)
            await self._client.check(member)
        except (SwarmError, TimeoutError) as error:
            self._client.members.note("lost", f"{member.name} could not load its layers: {error}", node=member.name)
        finally:
            self._filling.discard(member.name)

    async def _reassign_missing(self, now: float) -> None:
        away = frozenset(member.name for member in self._client.members if member.state != "live")
        since = self._away.get(away)
        if away != self._replaced and since is None:
            self._away = {away: now}
        elif away != self._replaced and since is not None and now - since >= self._client.settings.balance_after:
            self._replaced = away
            await self._supply.reassign_missing(self._client.transport, self._client.members)


def smallest_inputs(stack: Stack) -> dict[str, Any]:
    """Return a minimal input for the model. Raises `SwarmError` if layerwise cannot generate one."""
    inputs = example_inputs(stack.model, 4)
    if inputs is None:
        raise SwarmError(
            f"{type(stack.model).__name__} takes inputs that layerwise cannot generate, so its nodes cannot be "
            "checked. Use a model that reads text or images."
        )
    return {name: value[:1] for name, value in inputs.items()}


def sample_pass(stack: Stack, layers: Sequence[int]) -> Capture:
    """Capture a small forward pass for health checks. Raises `SwarmError` if its arguments cannot be sent to nodes."""
    with torch.inference_mode():
        inputs = smallest_inputs(stack)
        stack.capture(**inputs)
        captured = stack.capture_pass(inputs)
    encode(captured, layers)
    return captured
