"""What a layer takes, and what a hop costs the router's processor, measured on a swarm in this process."""

from __future__ import annotations

import time
from statistics import median

from layerwise.errors import UnsupportedModel
from layerwise.stack import Stack
from layerwise.stack.inputs import example_inputs
from layerwise.swarm.gathering import gather
from layerwise.swarm.messages import Hop, Message, Response
from layerwise.swarm.nodes.local import LocalTransport, Schedule
from layerwise.swarm.nodes.node import Node
from layerwise.swarm.settings import SwarmSettings

NODES = 4
MOST_TOKENS = 400


def measured_costs(stack: Stack, seconds: float = 8.0) -> dict[str, float]:
    """Seconds of a layer and of the router for a hop, and the bytes of a hop there and back, of a decoder's tokens.

    The router's time is all processor time that the nodes do not take: embedding, head and the choice of the token are
    part of it. Raises `UnsupportedModel` for a model that writes no text.
    """
    inputs = example_inputs(stack.model, 8)
    if inputs is None or "input_ids" not in inputs:
        raise UnsupportedModel(f"{stack.source.name} writes no text: give its times with --times FILE")
    layers: list[float] = []
    sizes: list[int] = []
    inside = 0.0
    handle = Node.handle

    def timed(self: Node, message: Message) -> Response:
        nonlocal inside
        began = time.process_time()
        answer = handle(self, message)
        inside += time.process_time() - began
        if isinstance(message, Hop):
            layers.append((time.process_time() - began) / message.evaluations)
            state = message.passes[0]
            sizes.append(2 * len(state.state.data) + state.arguments.bytes)
        return answer

    settings = SwarmSettings(spot_share=0.0, health_seconds=1e6)
    with gather(stack, NODES, 1, settings=settings, schedule=Schedule()) as swarm:
        assert isinstance(swarm.router.calling.transport, LocalTransport), (
            "without an address nodes are in this process"
        )
        for node in swarm.router.calling.transport.members.values():
            node.handle = timed.__get__(node)  # type: ignore[method-assign]
        ends, began, before = time.perf_counter() + seconds, time.process_time(), len(layers)
        made = 0
        while made < MOST_TOKENS and (not made or time.perf_counter() < ends):
            swarm.generate(inputs["input_ids"][:1], max_new_tokens=10, do_sample=False)
            made += 10
        router = (time.process_time() - began - inside) / (len(layers) - before)
    return {"layer": median(layers), "router": router, "bytes": float(median(sizes))}
