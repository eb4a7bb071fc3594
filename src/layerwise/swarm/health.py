"""Whether nodes compute: each idle one runs a small pass now and then, and others take up what is away for long."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import torch

from layerwise.errors import SwarmError
from layerwise.stack import Stack
from layerwise.stack.inputs import example_inputs
from layerwise.swarm.calls import Calling
from layerwise.swarm.messages import Pass, RemoteVisit, Reply
from layerwise.swarm.node_records import NodeRecord, NodeRecords
from layerwise.swarm.supply import Supply
from layerwise.swarm.wire import encode, selected, to_array


class HealthChecks:
    """Lets nodes run the layers that they hold on a sample, notes how that ends, and balances what nodes held that stay
    away.
    """

    def __init__(self, sample: Pass, calling: Calling, supply: Supply) -> None:
        self._sample = sample
        self._calling = calling
        self._supply = supply
        self._balanced: frozenset[str] = frozenset()
        self._away: dict[frozenset[str], float] = {}

    @property
    def members(self) -> NodeRecords:
        """The nodes."""
        return self._calling.members

    async def check(self, member: NodeRecord) -> bool:
        """Let a node run every layer that it holds; whether it did, in time."""
        member.checks += 1
        visits = tuple(RemoteVisit(slot, layer) for slot, layer in enumerate(sorted(member.layers)) if not layer.source)
        if not visits:
            return member.state == "live"
        arguments = selected(self._sample.arguments, [visit.layer.number for visit in visits])
        response = await self._calling.check(member.name, visits, Pass(0, self._sample.state, arguments))
        if isinstance(response, Reply):
            self.members.change(member.name, "live", "returned", f"{member.name} computes again")
            return True
        self.members.failed(member.name, response)
        return False

    async def watch(self) -> None:
        """Check every idle node again and again, without end, so that losses and returns are seen."""
        while True:
            await asyncio.sleep(self._calling.settings.health_seconds)
            idle = [member for member in self.members if member.state != "quarantined" and not member.waiting]
            await asyncio.gather(*(self.check(member) for member in idle))
            await self._balance(asyncio.get_running_loop().time())

    async def _balance(self, now: float) -> None:
        """Let others hold what nodes held that have been away for long."""
        away = frozenset(member.name for member in self.members if member.state in ("gone", "quarantined"))
        since = self._away.get(away)
        if away != self._balanced and since is None:
            self._away = {away: now}
        elif away != self._balanced and since is not None and now - since >= self._calling.settings.balance_after:
            self._balanced = away
            await self._supply.balance(self._calling.transport, self.members)


def smallest_inputs(stack: Stack) -> dict[str, Any]:
    """The smallest input that the model takes. Raises `SwarmError` for a model of which that is not known."""
    inputs = example_inputs(stack.model, 4)
    if inputs is None:
        raise SwarmError(
            f"{type(stack.model).__name__} takes inputs that layerwise cannot make up, so that nobody can "
            "tell whether its nodes compute"
        )
    return {name: value[:1] for name, value in inputs.items()}


def sample_pass(stack: Stack, layers: Sequence[int]) -> Pass:
    """A small pass, with which nodes show that they compute. Raises `UnsupportedModel` for what cannot be sent."""
    with torch.inference_mode():
        inputs = smallest_inputs(stack)
        stack.capture(**inputs)
        captured = stack.capture_pass(inputs)
        return Pass(0, to_array(captured.state), encode(captured.calls, dict.fromkeys(layers)))
