"""Nodes in Ray processes generate the same tokens, also when processes are killed or stopped."""

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
from swarm.driver import decode_tokens, events, generate_tokens, inspect_model, prompts

pytestmark = [pytest.mark.slow, pytest.mark.numbers]

NODES = 4
TYPES = (
    *("llama", "gemma2", "gpt2", "bloom", "mixtral", "mamba", "qwen3_next", "opt", "gptj", "falcon"),
    *("phi3", "deepseek_v3"),
)
_NUMBERS = count()
PATIENT = {"first_deadline": 300.0, "min_deadline": 300.0, "health_seconds": 1e6, "balance_after": 1e9}
"""A node is lost only when its process exits, never because the machine is busy."""


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
    swarm.run(swarm.load_nodes())
    return swarm


def _stack(name: str) -> Stack:
    return inspect_model(specimen.build(named(name)), prompts(2)[0])


@pytest.mark.parametrize("name", [TYPES[0], *(pytest.param(name, marks=pytest.mark.nightly) for name in TYPES[1:])])
def test_tokens_equal_a_single_process(transport: RayTransport, name: str) -> None:
    stack = _stack(name)
    ids, mask = prompts(200)
    with _swarm(transport, stack, **PATIENT) as swarm:
        written, _ = decode_tokens(swarm, ids, mask)
    assert torch.equal(written, generate_tokens(stack.model, ids, mask))


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
        raise AssertionError("the stream ended without an answer")

    return await asyncio.gather(*(one(ids) for ids in texts.tolist()))


def test_killed_processes_are_replaced_by_replicas_then_missing(transport: RayTransport) -> None:
    """Killing one replica changes no token; killing both makes layers missing, down to the quorum."""
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
            assert list(answer.tokens) == generate_tokens(stack.model, ids[None], new_tokens=30)[0].tolist()
            assert answer.missing == ()
        for answer in swarm.run(_streams(swarm, texts, 30, lambda: kill(holders[1]))):
            assert len(answer.tokens) == 30
            assert set(answer.missing) == {layer.number for layer in held}
            assert answer.expected.basis == "unknown"
        kill(*set(transport.processes) - set(holders))
        with pytest.raises(BelowQuorumError, match="0 of 5 layers are live and the quorum is 2 layers"):
            swarm.generate(texts[0], max_new_tokens=4)
        assert not events(swarm, ["late"]), "an exited process is detected before its deadline"
