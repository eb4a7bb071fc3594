"""Nodes on Ray, in processes of their own: tokens are those of one process, also when processes die or stop.

One cluster of eight nodes serves all tests of this module, one model after another.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator

import pytest
import torch

from contracts import specimen
from contracts.decoders import DECODERS
from layerwise.errors import BelowQuorum
from layerwise.plan import Plan
from layerwise.stack import Stack
from layerwise.swarm import Answer, Capacity, Quorum, Swarm, SwarmSettings
from layerwise.swarm.cluster.nodes import RayTransport
from layerwise.swarm.placement.supply import UNLIMITED, Supply
from swarm.driver import decoded, generated, inspected, prompts

pytestmark = [pytest.mark.slow, pytest.mark.numbers]

NODES = 4
TYPES = (
    "llama", "gemma2", "gpt2", "bloom", "mixtral", "mamba", "qwen3_next", "opt", "gptj", "falcon", "phi3",
    "deepseek_v3",
)  # fmt: skip


@pytest.fixture(scope="module")
def transport() -> Iterator[RayTransport]:
    made = RayTransport([f"node-{number}" for number in range(NODES)], "local", device="cpu")
    try:
        yield made
    finally:
        asyncio.run(made.close())


class _Kept:
    """A transport whose nodes outlive a swarm."""

    def __init__(self, transport: RayTransport) -> None:
        self.nodes, self.call = transport.nodes, transport.call

    async def close(self) -> None:
        """Keep the nodes."""


def _swarm(transport: RayTransport, stack: Stack, replicas: int = 2, **settings: object) -> Swarm:
    supply = Supply(
        stack, Plan.identity(stack.depth), [Capacity(name, UNLIMITED) for name in transport.nodes()], replicas
    )
    swarm = Swarm(stack, _Kept(transport), supply, SwarmSettings(**settings))  # type: ignore[arg-type]
    swarm.run(swarm.fill())
    return swarm


def _stack(name: str) -> Stack:
    return inspected(specimen.build(next(one for one in DECODERS if one.model_type == name)), prompts(2)[0])


@pytest.mark.parametrize("name", TYPES)
def test_tokens_are_those_of_one_process(transport: RayTransport, name: str) -> None:
    stack = _stack(name)
    ids, mask = prompts(200)
    with _swarm(transport, stack) as swarm:
        written, _ = decoded(swarm, ids, mask)
    assert torch.equal(written, generated(stack.model, ids, mask))


async def _streams(swarm: Swarm, texts: torch.Tensor, tokens: int) -> list[Answer]:
    return await asyncio.gather(
        *(swarm.answer(ids, max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False) for ids in texts)
    )


def test_a_process_that_stops_is_late_and_returns(transport: RayTransport) -> None:
    """SIGSTOP under four streams: a replica repeats what the stopped node did; after SIGCONT the node is live again."""
    stack = _stack("llama")
    texts = prompts(4)[0].clamp(min=3)

    async def stopped(swarm: Swarm) -> tuple[str, list[Answer]]:
        streams = asyncio.create_task(_streams(swarm, texts, 60))
        while (busiest := max(swarm.members, key=lambda record: record.hops)).hops < 20:
            await asyncio.sleep(0.01)
        process = transport.processes[busiest.name][1]
        os.kill(process, signal.SIGSTOP)
        try:
            return busiest.name, await streams
        finally:
            os.kill(process, signal.SIGCONT)

    async def until_live(swarm: Swarm, name: str) -> None:
        while swarm.members[name].state != "live":
            await asyncio.sleep(0.1)

    with _swarm(transport, stack, health_seconds=0.5, hop_floor=0.3) as swarm:
        try:
            name, answers = swarm.run(stopped(swarm))
        finally:
            for event in swarm.members.events:
                print(event)
        for ids, answer in zip(texts, answers, strict=True):
            assert list(answer.tokens) == generated(stack.model, ids[None], new_tokens=60)[0].tolist()
        assert any(event.kind == "late" and event.node == name for event in swarm.members.events)
        swarm.run(asyncio.wait_for(until_live(swarm, name), 60))


def test_processes_that_die_are_replaced_by_replicas_and_then_missed(transport: RayTransport) -> None:
    """SIGKILL of one of two replicas changes no token; of both, the layers are missing; below the quorum, a refusal."""
    stack = _stack("llama")
    texts = prompts(4, seed=2)[0].clamp(min=3)

    async def killed(swarm: Swarm, name: str) -> list[Answer]:
        streams = asyncio.create_task(_streams(swarm, texts, 30))
        await asyncio.sleep(0.05)
        os.kill(transport.processes[name][1], signal.SIGKILL)
        return await streams

    with _swarm(transport, stack, quorum=Quorum(layers=2), balance_after=1e9) as swarm:
        held = swarm.members["node-0"].layers
        holders = [record.name for record in swarm.members if record.layers == held]
        assert len(holders) == 2
        for ids, answer in zip(texts, swarm.run(killed(swarm, holders[0])), strict=True):
            assert list(answer.tokens) == generated(stack.model, ids[None], new_tokens=30)[0].tolist()
            assert answer.missing == ()
        for answer in swarm.run(killed(swarm, holders[1])):
            assert len(answer.tokens) == 30
            assert set(answer.missing) == {layer.number for layer in held}
            assert answer.expected.basis == "unknown"
        for name in set(transport.nodes()) - set(holders):
            os.kill(transport.processes[name][1], signal.SIGKILL)
        began = time.monotonic()
        with pytest.raises(BelowQuorum, match="0 of 5 layers are live and the quorum is 2 layers"):
            swarm.generate(texts[0], max_new_tokens=4)
        assert time.monotonic() - began < 10
