"""Gathering a swarm: who holds which layers is decided, every node gets its layers, and the router begins."""

from __future__ import annotations

import asyncio

from layerwise.plan import Plan
from layerwise.stack import Stack
from layerwise.swarm.cluster.nodes import RayTransport
from layerwise.swarm.decoding.servable import Servable
from layerwise.swarm.estimate import LossEstimate
from layerwise.swarm.nodes.local import LocalTransport, Schedule, VirtualLoop
from layerwise.swarm.nodes.node import local_node
from layerwise.swarm.settings import SwarmSettings
from layerwise.swarm.supply import Supply
from layerwise.swarm.swarm import Swarm


def gather(
    stack: Stack,
    nodes: int = 4,
    replicas: int = 2,
    *,
    address: str | None = None,
    plan: Plan | str | None = None,
    settings: SwarmSettings | None = None,
    estimate: LossEstimate | None = None,
    schedule: Schedule | None = None,
) -> Swarm:
    """Gather a swarm of `nodes` nodes that hold `replicas` copies of every layer of the `plan`.

    Without an `address` the nodes are objects of this process that share the weights of `stack` (in virtual time with a
    `schedule` of faults). With an address (`local`, `auto`, `HOST:PORT`) they are processes of a Ray cluster.
    `estimate` is the cost of missing layers (`layerwise.swarm.estimate.estimate_of_run`). Layers of other models in
    `Stack.with_sources` that the plan does not name are held as replacements (`SwarmSettings.replacements`).

    Raises `SwarmError` if the cluster has no room, and `UnsupportedModel` for layers that cannot run elsewhere.
    """
    supply = _supply(stack, nodes, replicas, plan)
    if address is None:
        return _in_process(stack, supply, settings, estimate, schedule)
    servable = Servable.of(stack, supply.plan, settings or SwarmSettings())  # before any node is started
    transport = RayTransport(tuple(supply.placement), address)
    swarm = Swarm(stack, transport, supply, settings, estimate=estimate, servable=servable)
    try:
        swarm.run(swarm.fill())
    except BaseException:
        swarm.shut_down()
        raise
    return swarm


async def gathered(
    stack: Stack,
    nodes: int = 4,
    replicas: int = 2,
    *,
    address: str | None = None,
    plan: Plan | str | None = None,
    settings: SwarmSettings | None = None,
    estimate: LossEstimate | None = None,
) -> Swarm:
    supply = _supply(stack, nodes, replicas, plan)
    if address is None:
        return _in_process(stack, supply, settings, estimate)
    servable = Servable.of(stack, supply.plan, settings or SwarmSettings())  # before any node is started
    transport = await asyncio.to_thread(RayTransport, tuple(supply.placement), address)
    try:
        swarm = Swarm(stack, transport, supply, settings, estimate=estimate, servable=servable)
        await swarm.fill()
    except BaseException:
        await transport.close()
        raise
    return swarm


def _in_process(
    stack: Stack,
    supply: Supply,
    settings: SwarmSettings | None,
    estimate: LossEstimate | None,
    schedule: Schedule | None = None,
) -> Swarm:
    halves = supply.plan.has_sublayers()
    members = {name: local_node(name, stack, supply.held(name), halves=halves) for name in supply.placement}
    transport = LocalTransport(members, schedule or Schedule(hop=0.0, layer=0.0))
    loop = None if schedule is None else VirtualLoop
    swarm = Swarm(stack, transport, supply, settings, estimate=estimate, loop_factory=loop)
    for name in members:
        swarm.members.join(name, supply.held(name))
    return swarm


def _supply(stack: Stack, nodes: int, replicas: int, plan: Plan | str | None) -> Supply:
    wanted = Plan.identity(stack.depth) if plan is None else Plan.parse(plan)
    stack.check(wanted)
    return Supply(stack, wanted, [f"node-{number}" for number in range(nodes)], replicas)
