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

    Raises `SwarmError` if the cluster has no room, and `UnsupportedModelError` for layers that cannot run elsewhere.
    """
    wanted = Plan.identity(stack.depth) if plan is None else Plan.parse(plan)
    stack.check(wanted)
    supply = Supply(stack, wanted, [f"node-{number}" for number in range(nodes)], replicas)
    if address is None:
        held = {name: supply.held(name) for name in supply.placement}
        members = {name: local_node(name, stack, own, halves=wanted.has_sublayers()) for name, own in held.items()}
        local = LocalTransport(members, schedule or Schedule(hop=0.0, layer=0.0))
        loop = None if schedule is None else VirtualLoop
        swarm = Swarm(stack, local, supply, settings, estimate=estimate, loop_factory=loop)
        for name, own in held.items():
            swarm.members.join(name, own)
        return swarm
    servable = Servable.of(stack, wanted, settings or SwarmSettings())  # before any node is started
    transport = RayTransport(tuple(supply.placement), address)
    try:
        swarm = Swarm(stack, transport, supply, settings, estimate=estimate, servable=servable)
        asyncio.run(swarm.fill())
    except BaseException:
        asyncio.run(transport.close())
        raise
    return swarm
