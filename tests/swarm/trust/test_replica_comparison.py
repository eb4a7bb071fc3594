"""A node that returns something else than its layers' output is found, named and left; an honest one never."""

from __future__ import annotations

from functools import cache

import pytest
import torch

from contracts import specimen
from contracts.decoders import DECODERS
from layerwise.stack import Stack, load
from layerwise.swarm import Fault, Quorum, Schedule, Swarm, SwarmSettings, gather
from layerwise.swarm.nodes.local import LocalTransport
from swarm.driver import generated, prompts
from tier import by_tier

pytestmark = pytest.mark.numbers

REQUESTS = 20
WITHIN = 4


@cache
def _stack() -> Stack:
    stack = load(specimen.build(next(one for one in DECODERS if one.model_type == "llama")))
    stack.inspect(input_ids=prompts(1)[0])
    return stack


def _quarantined(swarm: Swarm) -> list[str]:
    return [record.name for record in swarm.members if record.state == "quarantined"]


def _requests_until_found(swarm: Swarm, seed: int) -> int | None:
    """After how many requests a node is quarantined; `None` if none is after `REQUESTS`."""
    texts, _ = prompts(REQUESTS, seed=seed)
    for number, ids in enumerate(texts, start=1):
        swarm.generate(ids, max_new_tokens=4, do_sample=False)
        if _quarantined(swarm):
            return number
    return None


@pytest.mark.parametrize("replicas", [2, 3])
@pytest.mark.parametrize("wrongness", ["noise", "zeros", "another layer"])
@pytest.mark.parametrize("seed", range(by_tier(fast=1, full=2, nightly=10)))
def test_a_wrong_node_is_quarantined(wrongness: str, replicas: int, seed: int) -> None:
    fault = Fault("node-1", "wrong", 0.0, wrongness="zeros" if wrongness == "zeros" else "noise")
    schedule = Schedule(() if wrongness == "another layer" else (fault,), seed=seed)
    with gather(_stack(), 2 * replicas, replicas, schedule=schedule, settings=SwarmSettings(seed=seed)) as swarm:
        if wrongness == "another layer":
            transport = swarm._transport
            assert isinstance(transport, LocalTransport)
            node = transport.members["node-1"]
            first, second = node.layers[:2]
            held = node._held[second]
            node.keep(first, held)
        found = _requests_until_found(swarm, seed)
        assert found is not None
        assert found <= WITHIN
        assert _quarantined(swarm) == ["node-1"]
        assert swarm.members["node-1"].reason.startswith("node-1: its answer to layers")


def test_the_text_is_right_when_a_wrong_node_was_found() -> None:
    """A request that a wrong node has touched begins again; what comes after it is found to be wrong is right."""
    stack = _stack()
    ids, _ = prompts(1)
    with gather(stack, 4, 2, schedule=Schedule((Fault("node-1", "wrong", 0.0),))) as swarm:
        answer = swarm.generate(ids, max_new_tokens=6, min_new_tokens=6, do_sample=False)
        assert _quarantined(swarm) == ["node-1"]
    assert list(answer.tokens) == generated(stack.model, ids)[0].tolist()


def test_an_honest_node_is_never_quarantined() -> None:
    for seed in range(by_tier(fast=1, full=10, nightly=100)):
        with gather(
            _stack(), 4, 2, schedule=Schedule(jitter=0.3, seed=seed), settings=SwarmSettings(seed=seed)
        ) as swarm:
            assert _requests_until_found(swarm, seed) is None


@pytest.mark.parametrize("wrongness", ["noise", "zeros"])
@pytest.mark.parametrize("replicas", [1, 2, 3])
@pytest.mark.parametrize("seed", range(by_tier(fast=1, full=3, nightly=10)))
def test_where_every_hop_is_compared_the_first_answer_is_right(wrongness: str, replicas: int, seed: int) -> None:
    """No wrong output of a single pass is returned, not even the first, whether a replica or the router finds it."""
    stack, (ids, _) = _stack(), prompts(1, seed=seed)
    schedule = Schedule((Fault("node-0", "wrong", 0.0, wrongness=wrongness),), seed=seed)
    order = "any" if seed % 2 else "fixed"
    settings = SwarmSettings(spot_share=1.0, seed=seed, order=order, hedging=False, quorum=Quorum(layers=1))
    with gather(stack, replicas + 1, replicas, schedule=schedule, settings=settings) as swarm:
        logits, answer = swarm.outputs(input_ids=ids)
        assert _quarantined(swarm) == ["node-0"]
    assert (answer.missing == ()) == (replicas > 1), (
        "without a replica the layers of the node that was left are missing"
    )
    torch.testing.assert_close(logits, stack.logits(answer.plan, input_ids=ids), rtol=1e-3, atol=1e-5)


@pytest.mark.slow
def test_a_node_without_a_replica_is_held_against_the_routers_own_layers() -> None:
    """Nobody else holds its layers: zeros are outside every bound that was learned while it was honest."""
    schedule = Schedule((Fault("node-1", "wrong", 0.25, wrongness="zeros"),))
    texts, _ = prompts(40)
    with gather(_stack(), 2, 1, schedule=schedule, settings=SwarmSettings(quorum=Quorum(layers=1))) as swarm:
        for ids in texts:
            swarm.generate(ids, max_new_tokens=4, do_sample=False)
        assert _quarantined(swarm) == ["node-1"]
