"""Create a swarm: its nodes, their layers, and the router."""

from __future__ import annotations

import asyncio

from layerwise.plan import Plan
from layerwise.stack import Stack
from layerwise.swarm.cluster.nodes import RayTransport
from layerwise.swarm.decoding import check_servable
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
    """Create a swarm of nodes that together hold several copies of every layer of a plan.

    Args:
        stack: The model. If the plan uses only its layers, nodes also hold the layers of the other models in
            `Stack.with_sources` as replacements (see `SwarmSettings.replacements`).
        nodes: Number of nodes.
        replicas: Number of copies of every layer, each on a different node.
        address: Ray cluster that runs the nodes: `local`, `auto` or `HOST:PORT`. By default, nodes are objects in this
            process that share the weights of `stack`.
        plan: Layer plan (default: the identity plan).
        settings: Quorum, deadlines and checks.
        estimate: Cost of missing layers, from `read_loss_estimate`.
        schedule: Faults to simulate in virtual time. Only used if the nodes are in this process.

    Raises:
        SwarmError: If the cluster has too few CPUs.
        UnsupportedModelError: If the layers cannot run on other machines.

    Example:
        >>> import layerwise
        >>> with gather(layerwise.load("demo"), nodes=2, replicas=1) as swarm:
        ...     len(swarm.generate([5, 6, 7], max_new_tokens=4, do_sample=False).tokens)
        4
    """
    plan = Plan.identity(stack.depth) if plan is None else Plan.parse(plan)
    stack.check(plan)
    supply = Supply(stack, plan, [f"node-{number}" for number in range(nodes)], replicas)
    if address is None:
        held = {name: supply.layers_on(name) for name in supply.placement}
        members = {
            name: local_node(name, stack, layers, sublayers=plan.has_sublayers()) for name, layers in held.items()
        }
        local = LocalTransport(members, schedule or Schedule(call_seconds=0.0, layer_seconds=0.0))
        loop = None if schedule is None else VirtualLoop
        swarm = Swarm(stack, local, supply, settings, estimate=estimate, loop_factory=loop)
        for name, layers in held.items():
            swarm.members.join(name, layers)
        return swarm
    servable = check_servable(stack, plan, settings or SwarmSettings())  # before any node is started
    transport = RayTransport(tuple(supply.placement), address)
    try:
        swarm = Swarm(stack, transport, supply, settings, estimate=estimate, servable=servable)
        asyncio.run(swarm.load_nodes())
    except BaseException:
        asyncio.run(transport.close())
        raise
    return swarm
