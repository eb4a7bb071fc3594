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
from layerwise.swarm.deadlines import ENOUGH, WINDOW, Latencies
from layerwise.swarm.gathering import gather
from layerwise.swarm.messages import Hop, Message, Response
from layerwise.swarm.nodes.local import Fault, Kind, LocalTransport, Schedule
from layerwise.swarm.nodes.node import Node
from layerwise.swarm.settings import SwarmSettings
from layerwise.swarm.swarm import Swarm
from swarm.chaos import decoder, prompt, undisturbed
from swarm.driver import events
from swarm.streams import Ended, answer_all
from tier import by_tier

NEW = 40
PROMPTS = [prompt(number) for number in range(8)]
NODES = tuple(f"node-{number}" for number in range(4))


def answered(
    faults: Sequence[Fault], streams: int = 8, replicas: int = 2, after: float = 0.0, **settings: object
) -> tuple[Swarm, tuple[Ended, ...]]:
    schedule = Schedule(tuple(faults), 0.001, 0.002)
    swarm = gather(decoder(), 4, replicas, settings=SwarmSettings(**settings), schedule=schedule)  # type: ignore[arg-type]
    with swarm:
        ended = answer_all(swarm, PROMPTS[:streams], Decoding(NEW), streams)
        swarm.run(asyncio.sleep(after))
        return swarm, ended


def check_whole(ended: Sequence[Ended]) -> None:
    for ids, each in zip(PROMPTS, ended, strict=False):
        assert each.answer is not None, each.refusal
        assert each.answer.tokens == undisturbed(ids, NEW)
        assert each.answer.is_whole


@pytest.mark.parametrize("seed", range(by_tier(fast=1, nightly=50)))
def test_a_machine_that_stands_still_for_seconds_loses_no_layer(seed: int) -> None:
    """Regression: 12 of 16 streams were wrong when all nodes stalled in turn, and named no missing layer."""
    chance, faults = random.Random(seed), list[Fault]()
    for stall in range(4):
        at, seconds = 0.1 + 2.0 * stall + chance.random(), chance.uniform(1, 3)
        faults += [Fault(node, "pause", at + chance.uniform(0, 0.3), at + seconds) for node in NODES]
    swarm, ended = answered(faults)
    check_whole(ended)
    assert not events(swarm, ["degraded", "lost"])


def test_a_node_that_is_always_slow_is_waited_for() -> None:
    swarm, ended = answered([Fault("node-1", "slow", 0.2, 20.0, seconds=2.0)], streams=2, replicas=1)
    check_whole(ended)
    assert events(swarm, ["late"])
    assert not events(swarm, ["degraded"])


def test_a_silent_node_is_left_for_a_replica_and_does_not_begin_what_was_left(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = Counter[str]()
    handle = Node.handle_all

    def counted(self: Node, messages: Sequence[Message]) -> Sequence[Response]:
        if self.name == "node-0" and asyncio.get_running_loop().time() > 2.0:
            ran[messages[0].request.partition("-")[0] if isinstance(messages[0], Hop) else ""] += 1
        return handle(self, messages)

    monkeypatch.setattr(Node, "handle_all", counted)
    swarm, ended = answered([Fault("node-0", "pause", 0.8, 10.0)], after=20.0, spot_share=0.0)
    check_whole(ended)
    assert max(max(each.seconds) for each in ended) < 2.0
    assert ran["request"] <= 1
    assert ran["check"]
    assert swarm.members["node-0"].state == "live"


@pytest.mark.parametrize("kind", ["die", "pause"])
def test_all_tokens_so_far_are_one_hop_that_runs_alone(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens, together = Counter[tuple[int, int]](), Counter[int]()
    call = LocalTransport.call

    async def counted(self: LocalTransport, node: str, messages: Sequence[Message]) -> Sequence[Response]:
        hops = [each for each in messages if isinstance(each, Hop)]
        together[len(hops)] += 1
        for hop in hops:
            tokens[len(hops), hop.given.state.shape[1]] += 1
            assert hop.given.index == 0 or hop.given.state.shape[1] == 1
        return await call(self, node, messages)

    monkeypatch.setattr(LocalTransport, "call", counted)
    swarm, ended = answered([Fault(node, kind, 0.4, 60.0) for node in ("node-0", "node-1")], spot_share=0.0)
    check_whole(ended)
    assert len(events(swarm, ["replayed"])) >= 8
    assert max(together) > 2
    assert all(number == 1 or width == 1 for number, width in +tokens)


def test_lateness_is_that_of_a_request_and_no_state_of_the_node() -> None:
    seen = set()

    async def look(swarm: Swarm) -> None:
        while True:
            seen.add(swarm.members["node-0"].state)
            await asyncio.sleep(0.1)

    swarm = gather(decoder(), 4, 2, schedule=Schedule((Fault("node-0", "pause", 0.1, 20.0),), 0.001, 0.002))
    with swarm:

        async def main() -> None:
            looking = asyncio.ensure_future(look(swarm))
            await swarm.answer(PROMPTS[0], max_new_tokens=NEW, do_sample=False)
            await asyncio.sleep(30.0)
            looking.cancel()

        swarm.run(main())
        assert events(swarm, ["late"])
    assert seen == {"live"}


def test_an_answer_that_was_lost_is_asked_for_again() -> None:
    swarm, ended = answered([Fault("node-1", "lost", 0.2, 0.9)], streams=2, replicas=1)
    check_whole(ended)
    assert max(max(each.seconds) for each in ended) < 5.0
    assert not events(swarm, ["degraded"])


def test_a_process_that_hangs_is_missed_after_its_patience_and_replaced() -> None:
    swarm, ended = answered([Fault("node-1", "pause", 0.2)], streams=1, replicas=1, after=60.0)
    (only,) = ended
    assert only.answer.missing == tuple(sorted(layer.number for layer in swarm.members["node-1"].layers))
    assert 29.0 < max(only.seconds) < 32.0
    assert swarm.members["node-1"].state == "suspected"
    assert swarm.members["node-1"].layers <= swarm.members.live_layers(), "others have taken up what it held"


def test_a_process_that_was_started_again_is_sent_its_layers_again() -> None:
    settings = SwarmSettings(health_seconds=0.5, balance_after=1e9)
    with gather(decoder(), 4, 1, settings=settings, schedule=Schedule()) as swarm:
        answer_all(swarm, PROMPTS[:1], Decoding(2), 1)
        node = swarm._transport.members["node-1"]  # type: ignore[attr-defined]
        held = node.layers
        node.restart()
        node._held.clear()
        swarm.run(asyncio.sleep(3.0))
        assert node.layers == held
        assert swarm.members["node-1"].state == "live"
        assert [event.kind for event in swarm.members.events if event.node == "node-1"][1:] == ["lost", "returned"]
        check_whole(answer_all(swarm, PROMPTS[:4], Decoding(NEW), 4))


def test_a_node_that_works_for_requests_that_were_cut_off_is_not_silent() -> None:
    """The call under way is waited for, though nobody needs its answers."""
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


def test_a_request_that_is_cancelled_leaves_nothing_on_any_node() -> None:
    faults = (Fault("node-0", "pause", 0.05, 5.0), Fault("node-3", "die", 0.08, 1.0))
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


def recorded(seconds: list[float], work: int = 1) -> Latencies:
    latencies = Latencies(first=10.0, floor=0.001)
    for each in seconds:
        latencies.record(each, work)
    return latencies


@given(st.lists(st.floats(0.001, 100), min_size=ENOUGH, max_size=WINDOW + 60))
def test_quantiles_are_those_of_the_last_hops(seconds: list[float]) -> None:
    latencies, last = recorded(seconds), seconds[-WINDOW:]
    for share in (0.5, 0.95, 0.99):
        assert latencies.quantile(share) == np.quantile(last, share, method="inverted_cdf")
    assert latencies.deadline() == min(30.0, max(0.001, 2 * np.quantile(last, 0.99, method="inverted_cdf")))


def test_before_enough_hops_the_deadline_is_the_first_one() -> None:
    latencies = recorded([1.0] * (ENOUGH - 1))
    assert latencies.deadline(1) == pytest.approx(10.02)
    assert latencies.deadline(100) == pytest.approx(12.0)
    latencies.record(1.0)
    assert latencies.deadline() == 2.0
    assert Latencies().quantile(0.5) is None


def test_the_floor_holds_and_what_lies_before_the_window_is_forgotten() -> None:
    assert recorded([1e-5] * ENOUGH).deadline() == 0.001
    assert recorded([9.0] * WINDOW + [0.1] * WINDOW).deadline() == 0.2


def test_a_long_prompt_has_its_own_deadline() -> None:
    latencies = recorded([0.1] * ENOUGH)
    assert latencies.deadline(64) == pytest.approx(2 * 6.4), "in proportion to the work, while no such hop is known"
    for _ in range(ENOUGH):
        latencies.record(3.0, work=64)
    assert latencies.deadline(64) == 6.0
    assert latencies.deadline(1) == 0.2, "a prompt does not slow the deadline of a token"
    assert latencies.deadline(16) == pytest.approx(2 * 1.6), "the least of what the classes around it say"
    assert latencies.deadline(50) == 6.0
    assert recorded([3.0] * ENOUGH, work=64).deadline(1) == 6.0, "less work takes no longer"


def test_a_node_that_has_become_slow_is_given_more_time() -> None:
    latencies = recorded([0.1] * WINDOW)
    late = 0
    for _ in range(20):
        late += latencies.deadline() < 1.0
        latencies.record(1.0)
    assert late == 3
    assert latencies.deadline() == 2.0


def test_no_answer_makes_a_deadline_longer_than_thirty_seconds_or_ten_medians() -> None:
    silent, others = recorded([0.1] * WINDOW + [3600.0] * 3), recorded([0.1] * WINDOW)
    assert silent.deadline() == 30.0
    assert silent.deadline(1, others) == 1.0, "ten times the median of the others"
    assert recorded([0.01] * ENOUGH).deadline(1, others) == 0.02
    assert Latencies(first=100.0).deadline(1, others) == pytest.approx(4 * 2 * 0.1), "of a node that nobody knows"
    assert Latencies(first=10.0, floor=60.0).deadline(1, others) == 60.0, "what was asked for as the least holds"


def test_patience_grows_with_the_work_and_with_nothing_else() -> None:
    silent = recorded([0.1] * WINDOW + [3600.0] * 3)
    assert silent.patience() == Latencies().patience() == pytest.approx(30.02)
    assert silent.patience(1000) == pytest.approx(50.0)
    assert Latencies(first=10.0, floor=60.0).patience() == pytest.approx(180.02)


def test_few_honest_hops_are_late() -> None:
    chance = random.Random(0)
    latencies, late = recorded([chance.lognormvariate(0, 0.5) for _ in range(WINDOW)]), 0
    for _ in range(5000):
        seconds = chance.lognormvariate(0, 0.5)
        late += seconds > latencies.deadline()
        latencies.record(seconds)
    assert late <= 5
