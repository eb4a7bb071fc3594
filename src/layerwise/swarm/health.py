"""Whether nodes compute: each idle one runs a small pass now and then, and others take up what is away for long."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import torch

from layerwise.errors import SwarmError
from layerwise.stack import Capture, Stack
from layerwise.stack.inputs import example_inputs
from layerwise.swarm.calls import Calling
from layerwise.swarm.messages import Refused
from layerwise.swarm.node_records import NodeRecord
from layerwise.swarm.supply import Supply
from layerwise.swarm.wire import encode


class HealthChecks:
    """Lets nodes show that they compute, and others hold what is on nodes that stay away."""

    def __init__(self, calling: Calling, supply: Supply) -> None:
        self._calling = calling
        self._supply = supply
        self._replaced: frozenset[str] = frozenset()
        self._away: dict[frozenset[str], float] = {}
        self._filling: set[str] = set()

    async def watch(self) -> None:
        calling = self._calling
        while True:
            await asyncio.sleep(calling.settings.health_seconds)
            for member in calling.members:
                if member.began is None and member.name not in self._filling:
                    calling.begin(self._check(member))
            await self._reassign_missing(asyncio.get_running_loop().time())

    async def _check(self, member: NodeRecord) -> None:
        response = await self._calling.check(member)
        if not (isinstance(response, Refused) and response.lacks_layers) or member.name in self._filling:
            return
        self._filling.add(member.name)
        try:
            await self._supply.fill_again(self._calling.transport, member)
            await self._calling.check(member)
        except (SwarmError, TimeoutError) as error:
            self._calling.members.note("lost", f"{member.name} did not take up its layers: {error}", node=member.name)
        finally:
            self._filling.discard(member.name)

    async def _reassign_missing(self, now: float) -> None:
        away = frozenset(member.name for member in self._calling.members if member.state != "live")
        since = self._away.get(away)
        if away != self._replaced and since is None:
            self._away = {away: now}
        elif away != self._replaced and since is not None and now - since >= self._calling.settings.balance_after:
            self._replaced = away
            await self._supply.reassign_missing(self._calling.transport, self._calling.members)


def smallest_inputs(stack: Stack) -> dict[str, Any]:
    """The smallest input that the model takes. Raises `SwarmError` for a model of which that is not known."""
    inputs = example_inputs(stack.model, 4)
    if inputs is None:
        raise SwarmError(
            f"{type(stack.model).__name__} takes inputs that layerwise cannot make up, so that nobody can "
            "tell whether its nodes compute"
        )
    return {name: value[:1] for name, value in inputs.items()}


def sample_pass(stack: Stack, layers: Sequence[int]) -> Capture:
    """A small pass, with which nodes show that they compute. Raises `UnsupportedModelError` for what cannot be sent."""
    with torch.inference_mode():
        inputs = smallest_inputs(stack)
        stack.capture(**inputs)
        captured = stack.capture_pass(inputs)
    encode(captured, layers)
    return captured
