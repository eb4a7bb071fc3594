"""Nodes in Ray processes write the tokens of one process, also when processes are killed or stopped."""

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from itertools import count

import pytest
import torch

from contracts import specimen
from contracts.zoo import named
from layerwise.errors import BelowQuorumError
from layerwise.plan import Plan
from layerwise.stack import Stack
from layerwise.swarm import Answer, Quorum, Swarm, SwarmSettings
from layerwise.swarm.answer import Decoding
from layerwise.swarm.cluster.nodes import RayTransport
from layerwise.swarm.supply import Supply
from swarm.driver import decoded, events, generated, inspected, prompts

pytestmark = [pytest.mark.slow, pytest.mark.numbers]

NODES = 4
TYPES = (
    *("llama", "gemma2", "gpt2", "bloom", "mixtral", "mamba", "qwen3_next", "opt", "gptj", "falcon"),
    *("phi3", "deepseek_v3"),
)
_NUMBERS = count()
PATIENT = {"first_deadline": 300.0, "hop_floor": 300.0, "health_seconds": 1e6, "balance_after": 1e9}
"""A node is lost only when its process has ended, never because the machine is busy."""


@pytest.fixture(scope="module")
def transport(ray: None) -> Iterator[RayTransport]:
    made = RayTransport([f"node-{number}" for number in range(NODES)], "local", device="cpu")
    try:
        yield made
    finally:
        asyncio.run(made.close())


class _Kept:
    def __init__(self, transport: RayTransport) -> None:
        self.call = transport.call

    async def close(self) -> None:
        """Keep the nodes."""


def _swarm(transport: RayTransport, stack: Stack, replicas: int = 2, **settings: object) -> Swarm:
    supply = Supply(stack, Plan.identity(stack.depth), tuple(transport.processes), replicas)
    swarm = Swarm(stack, _Kept(transport), supply, SwarmSettings(**settings))  # type: ignore[arg-type]
    swarm.run(swarm.fill())
    return swarm


def _stack(name: str) -> Stack:
    return inspected(specimen.build(named(name)), prompts(2)[0])


@pytest.mark.parametrize("name", [TYPES[0], *(pytest.param(name, marks=pytest.mark.nightly) for name in TYPES[1:])])
def test_tokens_are_those_of_one_process(transport: RayTransport, name: str) -> None:
    stack = _stack(name)
    ids, mask = prompts(200)
    with _swarm(transport, stack, **PATIENT) as swarm:
        written, _ = decoded(swarm, ids, mask)
    assert torch.equal(written, generated(stack.model, ids, mask))


async def _streams(
    swarm: Swarm, texts: torch.Tensor, tokens: int, happens: Callable[[], None] | None = None
) -> list[Answer]:
    made = count(1)

    async def one(ids: list[int]) -> Answer:
        async for item in swarm.stream(ids, Decoding(tokens, tokens), request=f"request-{next(_NUMBERS)}"):
            if isinstance(item, Answer):
                return item
            if next(made) == 3 and happens is not None:
                happens()
        raise AssertionError("a stream ends with its answer")

    return await asyncio.gather(*(one(ids) for ids in texts.tolist()))


@pytest.mark.nightly
def test_a_process_that_stops_is_late_and_returns(transport: RayTransport) -> None:
    """SIGSTOP under four streams: a replica repeats the calls; after SIGCONT the node is live again."""
    stack = _stack("llama")
    texts = prompts(4)[0].clamp(min=3)
    stopped: list[str] = []

    async def until_live(name: str) -> None:
        while swarm.members[name].state != "live":
            await asyncio.sleep(0.1)

    with _swarm(transport, stack, health_seconds=0.5, hop_floor=2.0, balance_after=1e9) as swarm:

        def stop() -> None:
            stopped.append(max(swarm.members, key=lambda record: record.hops).name)
            os.kill(transport.processes[stopped[0]][1], signal.SIGSTOP)

        try:
            answers = swarm.run(_streams(swarm, texts, 60, stop))
        finally:
            for name in stopped:
                os.kill(transport.processes[name][1], signal.SIGCONT)
        for ids, answer in zip(texts, answers, strict=True):
            assert list(answer.tokens) == generated(stack.model, ids[None], new_tokens=60)[0].tolist()
        assert any(event.kind == "late" and event.node == stopped[0] for event in swarm.members.events)
        swarm.run(asyncio.wait_for(until_live(stopped[0]), 120))


def test_processes_that_die_are_replaced_by_replicas_and_then_missed(transport: RayTransport) -> None:
    """SIGKILL of one replica changes no token; of both, layers are missing; below the quorum, refusal."""
    stack = _stack("llama")
    texts = prompts(4, seed=2)[0].clamp(min=3)

    def kill(*names: str) -> None:
        for name in names:
            os.kill(transport.processes[name][1], signal.SIGKILL)

    with _swarm(transport, stack, quorum=Quorum(layers=2), **PATIENT) as swarm:
        held = swarm.members["node-0"].layers
        holders = [record.name for record in swarm.members if record.layers == held]
        assert len(holders) == 2
        for ids, answer in zip(texts, swarm.run(_streams(swarm, texts, 30, lambda: kill(holders[0]))), strict=True):
            assert list(answer.tokens) == generated(stack.model, ids[None], new_tokens=30)[0].tolist()
            assert answer.missing == ()
        for answer in swarm.run(_streams(swarm, texts, 30, lambda: kill(holders[1]))):
            assert len(answer.tokens) == 30
            assert set(answer.missing) == {layer.number for layer in held}
            assert answer.expected.basis == "unknown"
        kill(*set(transport.processes) - set(holders))
        with pytest.raises(BelowQuorumError, match="0 of 5 layers are live and the quorum is 2 layers"):
            swarm.generate(texts[0], max_new_tokens=4)
        assert not events(swarm, ["late"]), "a process that has ended is known without its deadline"
