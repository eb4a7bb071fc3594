"""A single pass along several paths: no wrong answer is returned, not even the first one."""

from __future__ import annotations

from functools import cache

import pytest
import torch

from contracts import specimen
from contracts.decoders import DECODERS
from layerwise.stack import Stack, load
from layerwise.swarm import Fault, Schedule, Swarm, SwarmSettings, gather
from swarm.driver import prompts
from tier import by_tier

pytestmark = pytest.mark.numbers


@cache
def _stack() -> Stack:
    stack = load(specimen.build(next(one for one in DECODERS if one.model_type == "llama")))
    stack.inspect(input_ids=prompts(1)[0])
    return stack


def _quarantined(swarm: Swarm) -> list[str]:
    return [record.name for record in swarm.members if record.state == "quarantined"]


def _settings(paths: int, seed: int) -> SwarmSettings:
    return SwarmSettings(paths=paths, spot_share=0.0, seed=seed, order="any" if seed % 2 else "fixed", hedging=False)


@pytest.mark.parametrize("wrongness", ["noise", "zeros"])
@pytest.mark.parametrize(("paths", "replicas"), [(2, 2), (3, 3), (3, 2), (2, 1)])
@pytest.mark.parametrize("seed", range(by_tier(fast=1, full=3, nightly=10)))
def test_the_first_answer_is_right(wrongness: str, paths: int, replicas: int, seed: int) -> None:
    stack, (ids, _) = _stack(), prompts(1, seed=seed)
    own = stack.logits("0-" + str(stack.depth - 1), input_ids=ids)
    schedule = Schedule((Fault("node-0", "wrong", 0.0, wrongness=wrongness),), seed=seed)
    with gather(stack, replicas, replicas, schedule=schedule, settings=_settings(paths, seed)) as swarm:
        for _ in range(3 if replicas > 1 else 1):  # without a replica its layers are missing afterwards
            logits, answer = swarm.outputs(input_ids=ids)
            assert answer.missing == ()
            torch.testing.assert_close(logits, own, rtol=1e-3, atol=1e-5)
        assert _quarantined(swarm) == ["node-0"]


def test_one_path_alone_returns_what_a_wrong_node_says() -> None:
    stack, (ids, _) = _stack(), prompts(1)
    own = stack.logits("0-" + str(stack.depth - 1), input_ids=ids)
    schedule = Schedule((Fault("node-0", "wrong", 0.0),))
    with gather(stack, 1, 1, schedule=schedule, settings=_settings(1, 0)) as swarm:
        logits, _ = swarm.outputs(input_ids=ids)
    assert not torch.allclose(logits, own, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("paths", [2, 3])
def test_honest_nodes_are_believed_on_every_path(paths: int) -> None:
    stack = _stack()
    for seed in range(by_tier(fast=2, full=6, nightly=30)):
        ids, _ = prompts(1, seed=seed)
        schedule = Schedule(jitter=0.3, seed=seed)
        with gather(stack, 4, 2, schedule=schedule, settings=_settings(paths, seed)) as swarm:
            logits, _ = swarm.outputs(input_ids=ids)
            assert _quarantined(swarm) == []
            hops = sum(record.hops for record in swarm.members)
        assert torch.equal(logits, stack.logits("0-" + str(stack.depth - 1), input_ids=ids))
        assert hops >= 2 * paths
