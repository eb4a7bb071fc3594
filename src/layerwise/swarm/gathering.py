"""Gathering a swarm: who holds which layers is decided, every node gets its layers, and the router begins."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from layerwise.plan import Plan
from layerwise.stack import Stack
from layerwise.swarm.cluster.nodes import RayTransport
from layerwise.swarm.decoding.servable import Servable
from layerwise.swarm.estimate import LossEstimate
from layerwise.swarm.nodes.local import LocalTransport, Schedule, VirtualLoop
from layerwise.swarm.nodes.node import local_node
from layerwise.swarm.replication import Capacity
from layerwise.swarm.settings import SwarmSettings
from layerwise.swarm.supply import UNLIMITED, Supply
from layerwise.swarm.swarm import Swarm


def gather(
    stack: Stack,
    nodes: int | Sequence[Capacity] = 4,
    replicas: int = 2,
    *,
    address: str | None = None,
    plan: Plan | str | None = None,
    settings: SwarmSettings | None = None,
    estimate: LossEstimate | None = None,
    schedule: Schedule | None = None,
) -> Swarm:
    """A swarm of `nodes` nodes without bounds, or of nodes of the given capacities.

    `replicas` copies of every layer of the `plan` are placed, of the most important layers first where memory does not
    suffice for all. Without an `address` the nodes are objects of this process, which share the weights of `stack`;
    with a `schedule` of faults they live on virtual time. With an address (`local`, `auto`, `HOST:PORT`) they are
    processes of a Ray cluster, and are sent their layers. `estimate` says what missing layers cost
    (`layerwise.swarm.estimate.estimate_of_run`), and so which are the most important.

    A plan over several models that `Stack.with_sources` put within reach holds layers of each; where the plan names
    none of them, nodes hold the layers of the others beside their own, to replace lost ones (see
    `SwarmSettings.replacements`).

    Raises `SwarmError` where the layers do not fit or the cluster has no room, and `UnsupportedModel` for layers that
    cannot run elsewhere.
    """
    supply = _supply(stack, nodes, replicas, plan, estimate)
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
    nodes: int | Sequence[Capacity] = 4,
    replicas: int = 2,
    *,
    address: str | None = None,
    plan: Plan | str | None = None,
    settings: SwarmSettings | None = None,
    estimate: LossEstimate | None = None,
) -> Swarm:
    """`gather` in an event loop that runs already, as that of a server does."""
    supply = _supply(stack, nodes, replicas, plan, estimate)
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
        swarm.members.join(supply.capacities[name], supply.held(name))
    return swarm


def _supply(
    stack: Stack,
    nodes: int | Sequence[Capacity],
    replicas: int,
    plan: Plan | str | None,
    estimate: LossEstimate | None,
) -> Supply:
    """Who is to hold which layers of the plan, by default that of the model itself."""
    wanted = Plan.identity(stack.depth) if plan is None else Plan.parse(plan)
    stack.check(wanted)
    capacities = [Capacity(f"node-{number}", UNLIMITED) for number in range(nodes)] if isinstance(nodes, int) else nodes
    singles = {} if estimate is None else {layer: estimate.single(layer) for layer in range(estimate.depth)}
    importance = {layer: nats for layer, nats in singles.items() if nats is not None}
    return Supply(stack, wanted, capacities, replicas, importance)
