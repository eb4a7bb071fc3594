"""Calls of nodes: deadlines, lateness, replays and cancellation."""

import asyncio
import random
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerwise.swarm.answer import Decoding
from layerwise.swarm.gathering import gather
from layerwise.swarm.messages import Message, Response, RunLayers
from layerwise.swarm.node_records import MAX_SAMPLES, MIN_SAMPLES, Latencies
from layerwise.swarm.nodes.local import Fault, FaultKind, LocalTransport, Schedule
from layerwise.swarm.nodes.node import Node
from layerwise.swarm.settings import SwarmSettings
from layerwise.swarm.swarm import Swarm
from swarm.chaos import Ended, answer_all, decoder, prompt, reference_tokens
from swarm.driver import events
from tier import by_tier

NEW = 40
PROMPTS = [prompt(number) for number in range(8)]
NODES = tuple(f"node-{number}" for number in range(4))


def answer_all_prompts(
    faults: Sequence[Fault], streams: int = 8, replicas: int = 2, after: float = 0.0, **settings: object
) -> tuple[Swarm, tuple[Ended, ...]]:
    schedule = Schedule(tuple(faults), 0.001, 0.002)
    swarm = gather(decoder(), 4, replicas, settings=SwarmSettings(**settings), schedule=schedule)  # type: ignore[arg-type]
    with swarm:
        ended = answer_all(swarm, PROMPTS[:streams], Decoding(NEW), streams)
        swarm.run(asyncio.sleep(after))
        return swarm, ended


def check_complete(ended: Sequence[Ended]) -> None:
    for ids, each in zip(PROMPTS, ended, strict=False):
        assert each.answer is not None, each.refusal
        assert each.answer.tokens == reference_tokens(ids, NEW)
        assert each.answer.is_complete


@pytest.mark.parametrize("seed", range(by_tier(fast=1, nightly=50)))
def test_a_stalled_machine_loses_no_layer(seed: int) -> None:
    """Regression: 12 of 16 streams were wrong without a missing layer after all nodes stalled in turn."""
    chance, faults = random.Random(seed), list[Fault]()
    for stall in range(4):
        at, seconds = 0.1 + 2.0 * stall + chance.random(), chance.uniform(1, 3)
        faults += [Fault(node, "pause", at + chance.uniform(0, 0.3), at + seconds) for node in NODES]
    swarm, ended = answer_all_prompts(faults)
    check_complete(ended)
    assert not events(swarm, ["degraded", "lost"])


def test_a_slow_node_is_not_abandoned() -> None:
    swarm, ended = answer_all_prompts([Fault("node-1", "slow", 0.2, 20.0, seconds=2.0)], streams=2, replicas=1)
    check_complete(ended)
    assert events(swarm, ["late"])
    assert not events(swarm, ["degraded"])


def test_a_silent_node_is_replaced_and_runs_nothing_later(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = Counter[str]()
    handle = Node.handle_all

    def counted(self: Node, messages: Sequence[Message]) -> Sequence[Response]:
        if self.name == "node-0" and asyncio.get_running_loop().time() > 2.0:
            ran[messages[0].request.partition("-")[0] if isinstance(messages[0], RunLayers) else ""] += 1
        return handle(self, messages)

    monkeypatch.setattr(Node, "handle_all", counted)
    swarm, ended = answer_all_prompts([Fault("node-0", "pause", 0.8, 10.0)], after=20.0, spot_share=0.0)
    check_complete(ended)
    assert max(max(each.seconds) for each in ended) < 2.0
    assert ran["request"] <= 1
    assert ran["check"]
    assert swarm.members["node-0"].state == "live"


@pytest.mark.parametrize("kind", ["fail", "pause"])
def test_recomputation_is_one_unbatched_call(kind: FaultKind, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens, together = Counter[tuple[int, int]](), Counter[int]()
    transport_call = LocalTransport.call

    async def counted(self: LocalTransport, node: str, messages: Sequence[Message]) -> Sequence[Response]:
        calls = [each for each in messages if isinstance(each, RunLayers)]
        together[len(calls)] += 1
        for call in calls:
            tokens[len(calls), call.given.state.shape[1]] += 1
            assert call.given.index == 0 or call.given.state.shape[1] == 1
        return await transport_call(self, node, messages)

    monkeypatch.setattr(LocalTransport, "call", counted)
    swarm, ended = answer_all_prompts([Fault(node, kind, 0.4, 60.0) for node in ("node-0", "node-1")], spot_share=0.0)
    check_complete(ended)
    assert len(events(swarm, ["replayed"])) >= 8
    assert max(together) > 2
    assert all(number == 1 or width == 1 for number, width in +tokens)


def test_a_lost_reply_is_requested_again() -> None:
    swarm, ended = answer_all_prompts([Fault("node-1", "lost", 0.2, 0.9)], streams=2, replicas=1)
    check_complete(ended)
    assert max(max(each.seconds) for each in ended) < 5.0
    assert not events(swarm, ["degraded"])


def test_a_hung_process_is_replaced_after_its_timeout() -> None:
    swarm, ended = answer_all_prompts([Fault("node-1", "pause", 0.2)], streams=1, replicas=1, after=60.0)
    (only,) = ended
    assert only.answer.missing == tuple(sorted(layer.number for layer in swarm.members["node-1"].layers))
    assert 29.0 < max(only.seconds) < 32.0
    assert swarm.members["node-1"].state == "suspected"
    assert swarm.members["node-1"].layers <= swarm.members.live_layers(), "other nodes hold its layers"


def test_a_restarted_process_gets_its_layers_again() -> None:
    settings = SwarmSettings(health_seconds=0.5, balance_after=1e9)
    with gather(decoder(), 4, 1, settings=settings, schedule=Schedule()) as swarm:
        answer_all(swarm, PROMPTS[:1], Decoding(2), 1)
        node = swarm._transport.members["node-1"]  # type: ignore[attr-defined]
        held = node.layers
        node.restart()
        node._blocks.clear()
        swarm.run(asyncio.sleep(3.0))
        assert node.layers == held
        assert swarm.members["node-1"].state == "live"
        assert [event.kind for event in swarm.members.events if event.node == "node-1"][1:] == ["lost", "returned"]
        check_complete(answer_all(swarm, PROMPTS[:4], Decoding(NEW), 4))


def test_a_node_busy_with_canceled_requests_stays_live() -> None:
    """The running call is awaited although its requests were canceled."""
    swarm = gather(decoder(), 4, 1, settings=SwarmSettings(health_seconds=1e6), schedule=Schedule((), 0.001, 1.0))
    with swarm:

        async def main() -> None:
            answers = [asyncio.ensure_future(swarm.answer(ids, max_new_tokens=NEW, do_sample=False)) for ids in PROMPTS]
            await asyncio.sleep(0.1)
            for answer in answers:
                answer.cancel()
            await asyncio.wait(answers)
            first = swarm.members["node-0"]
            assert (first.waiting, first.began) == (0, 0.0)
            await asyncio.sleep(10.0)
            assert (first.began, first.state) == (None, "live")

        swarm.run(main())


def test_a_canceled_request_leaves_no_cache_on_nodes() -> None:
    faults = (Fault("node-0", "pause", 0.05, 5.0), Fault("node-3", "fail", 0.08, 1.0))
    swarm = gather(decoder(), 4, 2, settings=SwarmSettings(spot_share=1.0), schedule=Schedule(faults, 0.001, 0.002))
    with swarm:

        async def cancelled(after: float) -> None:
            answer = asyncio.ensure_future(swarm.answer(PROMPTS[0], max_new_tokens=NEW, do_sample=False))
            await asyncio.sleep(after)
            answer.cancel()
            await asyncio.wait({answer})

        async def main() -> None:
            await asyncio.gather(*(cancelled(0.004 * number) for number in range(60)))
            await asyncio.sleep(60.0)

        swarm.run(main())
        transport = swarm._transport
        assert isinstance(transport, LocalTransport)
        assert {name: len(node._requests) for name, node in transport.members.items()} == dict.fromkeys(NODES, 0)


def record_latencies(seconds: list[float], work: int = 1) -> Latencies:
    latencies = Latencies(first=10.0, floor=0.001)
    for each in seconds:
        latencies.record(each, work)
    return latencies


@given(st.lists(st.floats(0.001, 100), min_size=MIN_SAMPLES, max_size=MAX_SAMPLES + 60))
def test_latency_quantiles(seconds: list[float]) -> None:
    latencies, last = record_latencies(seconds), seconds[-MAX_SAMPLES:]
    for share in (0.5, 0.95, 0.99):
        assert latencies.quantile(share) == np.quantile(last, share, method="inverted_cdf")
    assert latencies.deadline() == min(30.0, max(0.001, 2 * np.quantile(last, 0.99, method="inverted_cdf")))


def test_few_samples_use_the_first_deadline() -> None:
    latencies = record_latencies([1.0] * (MIN_SAMPLES - 1))
    assert latencies.deadline(1) == pytest.approx(10.02)
    assert latencies.deadline(100) == pytest.approx(12.0)
    latencies.record(1.0)
    assert latencies.deadline() == 2.0
    assert Latencies().quantile(0.5) is None


def test_deadlines_have_a_floor_a_window_and_bounds() -> None:
    assert record_latencies([1e-5] * MIN_SAMPLES).deadline() == 0.001
    assert record_latencies([9.0] * MAX_SAMPLES + [0.1] * MAX_SAMPLES).deadline() == 0.2

    silence, others = record_latencies([0.1] * MAX_SAMPLES + [3600.0] * 3), record_latencies([0.1] * MAX_SAMPLES)
    assert silence.deadline() == 30.0
    assert silence.deadline(1, others) == 1.0, "ten times the median of the others"
    assert record_latencies([0.01] * MIN_SAMPLES).deadline(1, others) == 0.02
    assert Latencies(first=100.0).deadline(1, others) == pytest.approx(4 * 2 * 0.1), "of a node without samples"
    assert Latencies(first=10.0, floor=60.0).deadline(1, others) == 60.0, "at least the floor"

    silence = record_latencies([0.1] * MAX_SAMPLES + [3600.0] * 3)
    assert silence.timeout() == Latencies().timeout() == pytest.approx(30.02)
    assert silence.timeout(1000) == pytest.approx(50.0)
    assert Latencies(first=10.0, floor=60.0).timeout() == pytest.approx(180.02)


def test_deadlines_depend_on_the_work() -> None:
    latencies = record_latencies([0.1] * MIN_SAMPLES)
    assert latencies.deadline(64) == pytest.approx(2 * 6.4), "in proportion to the work, while no such call is known"
    for _ in range(MIN_SAMPLES):
        latencies.record(3.0, work=64)
    assert latencies.deadline(64) == 6.0
    assert latencies.deadline(1) == 0.2, "a prompt does not slow the deadline of a token"
    assert latencies.deadline(16) == pytest.approx(2 * 1.6), "the minimum of the neighboring classes"
    assert latencies.deadline(50) == 6.0
    assert record_latencies([3.0] * MIN_SAMPLES, work=64).deadline(1) == 6.0, "less work takes no longer"


def test_deadlines_adapt_to_a_slow_node() -> None:
    latencies = record_latencies([0.1] * MAX_SAMPLES)
    late = 0
    for _ in range(20):
        late += latencies.deadline() < 1.0
        latencies.record(1.0)
    assert late == 3
    assert latencies.deadline() == 2.0


def test_few_normal_calls_are_late() -> None:
    chance = random.Random(0)
    latencies, late = record_latencies([chance.lognormvariate(0, 0.5) for _ in range(MAX_SAMPLES)]), 0
    for _ in range(5000):
        seconds = chance.lognormvariate(0, 0.5)
        late += seconds > latencies.deadline()
        latencies.record(seconds)
    assert late <= 5
