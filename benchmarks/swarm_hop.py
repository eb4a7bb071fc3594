"""What a hop of a swarm on Ray costs beside its layers, over a raw call of Ray that carries the same bytes.

    python benchmarks/swarm_hop.py            500 pairs, interleaved; bar: at most 1.25

The hop is one token through three layers of the demo model, as a request sends it; of its time, that of the layers on
the node's own clock is taken off. The raw call is one of the same process, with as many bytes there and back. Before
each of the two the router captures a pass, as it does before every hop. A call of a node that computes costs more than
one of a node that does not, since the router's process sleeps meanwhile; a second raw call is as busy as the hop.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time

import torch
from transformers.cache_utils import DynamicCache

from layerwise.stack import load
from layerwise.swarm.cluster import nodes
from layerwise.swarm.cluster.nodes import RayTransport
from layerwise.swarm.decoding.cached_decoding import advance
from layerwise.swarm.messages import Done, Hop, Pass, RemoteLayer, RemoteVisit, Reply
from layerwise.swarm.nodes.blocks import load_message
from layerwise.swarm.wire import encode, to_array


class Echoing(nodes.NodeActor):
    """A node that also returns so many of the bytes that it was sent, after so many seconds of computing."""

    def echo(self, sent: bytes, returned: int, seconds: float = 0.0) -> bytes:
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            pass
        return sent[:returned]


async def measure(transport: RayTransport, pairs: int) -> None:
    stack = load("demo")
    stack.inspect(input_ids=torch.tensor([[5, 6, 7]]))
    layers = (0, 1, 2)
    echo = transport._actors["node"].echo
    assert isinstance((await transport.call("node", [load_message(stack, layers)]))[0], Done)
    visits = tuple(RemoteVisit(layer, RemoteLayer(layer)) for layer in layers)
    cache = DynamicCache(config=stack.text_config)
    beside, raw, busy, whole, inside = [], [], [], [], []
    for index in range(pairs + 20):
        with torch.inference_mode():
            inputs = {"input_ids": torch.tensor([[5 + index % 90]]), "past_key_values": cache, "use_cache": True}
            captured = stack.capture_pass(inputs)
        advance(cache, [None] * stack.depth, 1, 1)
        began = time.perf_counter()
        arguments = encode(captured.calls, layers)
        sent = Pass(index, to_array(captured.state), arguments)
        (reply,) = await transport.call("node", [Hop("request", index, visits, sent, fresh=index == 0)])
        hop = time.perf_counter() - began
        assert isinstance(reply, Reply), reply
        there, back = len(sent.state.data) + arguments.nbytes, len(reply.state.data)
        payload = bytes(there)
        with torch.inference_mode():  # so that both calls come after the same work of the router
            stack.capture_pass(inputs)
        began = time.perf_counter()
        await echo.remote(payload, back)
        empty = time.perf_counter() - began
        with torch.inference_mode():
            stack.capture_pass(inputs)
        began = time.perf_counter()
        await echo.remote(payload, back, reply.seconds)
        if index >= 20:
            raw.append(empty)
            busy.append(time.perf_counter() - began - reply.seconds)
            beside.append(hop - reply.seconds)
            whole.append(hop)
            inside.append(reply.seconds)
    medians = [1000 * statistics.median(each) for each in (whole, inside, beside, raw, busy)]
    print(f"{pairs} pairs, {there:,} bytes there: hop {medians[0]:.3f} ms, of which layers {medians[1]:.3f}")
    print(f"beside the layers {medians[2]:.3f} ms, raw call {medians[3]:.3f} ms: {medians[2] / medians[3]:.3f} x")
    print(f"raw call whose node is as busy {medians[4]:.3f} ms: {medians[2] / medians[4]:.3f} x")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=500)
    options = parser.parse_args()
    torch.set_num_threads(1)
    nodes.NodeActor = Echoing
    transport = RayTransport(["node"], "local", device="cpu")
    try:
        asyncio.run(measure(transport, options.pairs))
    finally:
        asyncio.run(transport.close())


if __name__ == "__main__":
    main()
