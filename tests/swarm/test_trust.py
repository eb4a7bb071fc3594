"""Trust: a node that returns something else than its layers' output is found, named and left; an honest one never."""

import asyncio
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from layerwise.swarm import Fault, Quorum, Schedule, Swarm, SwarmSettings, gather
from layerwise.swarm.comparison import ReplicaComparison
from layerwise.swarm.messages import Arguments, Hop, Pass, RemoteLayer, RemoteVisit, Reply
from layerwise.swarm.node_records import NodeRecords
from layerwise.swarm.nodes.local import LocalTransport
from layerwise.swarm.trust import ROUTER, Judgement, is_compared, judge, tolerance
from layerwise.swarm.wire import to_array
from swarm.driver import generated, llama, prompts
from tier import by_tier, first_fast

REQUESTS = 20
WITHIN = 4


def _quarantined(swarm: Swarm) -> list[str]:
    return [record.name for record in swarm.members if record.state == "quarantined"]


def _requests_until_found(swarm: Swarm, seed: int) -> int | None:
    texts, _ = prompts(REQUESTS, seed=seed)
    for number, ids in enumerate(texts, start=1):
        swarm.generate(ids, max_new_tokens=4, do_sample=False)
        if _quarantined(swarm):
            return number
    return None


@pytest.mark.parametrize("replicas", first_fast([2, 3]))
@pytest.mark.parametrize("wrongness", ["noise", "zeros", "another layer"])
@pytest.mark.parametrize("seed", range(by_tier(fast=1, nightly=10)))
def test_a_wrong_node_is_quarantined(wrongness: str, replicas: int, seed: int) -> None:
    fault = Fault("node-1", "wrong", 0.0, wrongness="zeros" if wrongness == "zeros" else "noise")
    schedule = Schedule(() if wrongness == "another layer" else (fault,), seed=seed)
    with gather(llama(), 2 * replicas, replicas, schedule=schedule, settings=SwarmSettings(seed=seed)) as swarm:
        if wrongness == "another layer":
            transport = swarm._transport
            assert isinstance(transport, LocalTransport)
            node = transport.members["node-1"]
            first, second = node.layers[:2]
            held = node._held[second]
            node.keep(first, held)
        found = _requests_until_found(swarm, seed)
        assert found <= WITHIN
        assert _quarantined(swarm) == ["node-1"]
        assert swarm.members["node-1"].reason.startswith("node-1: its answer to layers")


def test_the_text_is_right_when_a_wrong_node_was_found() -> None:
    """A request that used a wrong node restarts, and later findings do not change it."""
    stack = llama()
    ids, _ = prompts(1)
    with gather(stack, 4, 2, schedule=Schedule((Fault("node-1", "wrong", 0.0),))) as swarm:
        answer = swarm.generate(ids, max_new_tokens=6, min_new_tokens=6, do_sample=False)
        assert _quarantined(swarm) == ["node-1"]
    assert list(answer.tokens) == generated(stack.model, ids)[0].tolist()


def test_tokens_that_passed_through_a_node_which_is_quarantined_later_are_named() -> None:
    stack, (ids, _) = llama(), prompts(1)
    schedule = Schedule(tuple(Fault(f"node-{number}", "wrong", 0.05) for number in range(2)))
    with gather(stack, 4, 2, schedule=schedule, settings=SwarmSettings(spot_share=0.05)) as swarm:
        for name in ("before", "meanwhile"):
            answer = swarm.generate(ids, request=name, max_new_tokens=3 if name == "before" else 60, do_sample=False)
        found = [event for event in swarm.members.events if event.kind == "quarantined"]
        overview = swarm.overview()
    assert {event.node for event in found} <= {"node-0", "node-1"}
    assert {name for event in found for name in event.requests} == {"before", "meanwhile"}
    assert answer.missing == ()
    assert answer.expected.basis == "unknown"
    assert answer.spans[-1].doubted
    assert (overview.completed, overview.degraded) == (2, 1)


def test_two_that_are_broken_alike_do_not_prove_each_other_right() -> None:
    stack, (ids, _) = llama(), prompts(1)
    schedule = Schedule(tuple(Fault(f"node-{number}", "wrong", 0.0, wrongness="zeros") for number in (1, 3)))
    settings = SwarmSettings(spot_share=1.0, quorum=Quorum(layers=1))
    with gather(stack, 4, 2, schedule=schedule, settings=settings) as swarm:
        answer = swarm.generate(ids, max_new_tokens=6, do_sample=False)
        assert _quarantined(swarm) == ["node-1", "node-3"]
    assert answer.missing == (3, 4)


def test_quarantine_ends_with_the_process() -> None:
    """A new process under the old name is checked; the old one stays quarantined."""
    stack, (ids, _) = llama(), prompts(1)
    schedule = Schedule((Fault("node-1", "wrong", 0.0, 1.0), Fault("node-1", "die", 20.3, 20.5)))
    states = []
    with gather(stack, 4, 2, schedule=schedule) as swarm:
        swarm.generate(ids, max_new_tokens=6, do_sample=False)
        for _ in range(3):
            states.append(swarm.members["node-1"].state)
            swarm.run(asyncio.sleep(15.0))
        answer = swarm.generate(ids, max_new_tokens=6, do_sample=False)
    assert states == ["quarantined", "quarantined", "live"]
    assert answer.is_whole


def test_an_honest_node_is_never_quarantined() -> None:
    for seed in range(by_tier(fast=1, nightly=100)):
        with gather(
            llama(), 4, 2, schedule=Schedule(jitter=0.3, seed=seed), settings=SwarmSettings(seed=seed)
        ) as swarm:
            assert _requests_until_found(swarm, seed) is None


@pytest.mark.parametrize("wrongness", first_fast(["noise", "zeros"]))
@pytest.mark.parametrize("replicas", [1, 2, 3])
@pytest.mark.parametrize("seed", range(by_tier(fast=1, nightly=10)))
def test_where_every_hop_is_compared_the_first_answer_is_right(wrongness: str, replicas: int, seed: int) -> None:
    """No wrong output of a pass is returned, whether a replica or the router detects it."""
    stack, (ids, _) = llama(), prompts(1, seed=seed)
    schedule = Schedule((Fault("node-0", "wrong", 0.0, wrongness=wrongness),), seed=seed)
    settings = SwarmSettings(spot_share=1.0, seed=seed, quorum=Quorum(layers=1))
    with gather(stack, replicas + 1, replicas, schedule=schedule, settings=settings) as swarm:
        logits, answer = swarm.outputs(input_ids=ids)
        assert _quarantined(swarm) == ["node-0"]
    assert (answer.missing == ()) == (replicas > 1), (
        "without a replica the layers of the node that was left are missing"
    )
    torch.testing.assert_close(logits, stack.logits(answer.plan, input_ids=ids), rtol=1e-3, atol=1e-5)


@pytest.mark.slow
def test_a_node_without_a_replica_is_held_against_the_routers_own_layers() -> None:
    schedule = Schedule((Fault("node-1", "wrong", 0.25, wrongness="zeros"),))
    texts, _ = prompts(40)
    with gather(llama(), 2, 1, schedule=schedule, settings=SwarmSettings(quorum=Quorum(layers=1))) as swarm:
        for ids in texts:
            swarm.generate(ids, max_new_tokens=4, do_sample=False)
        assert _quarantined(swarm) == ["node-1"]


@settings(max_examples=by_tier(fast=3, nightly=200))
@given(st.sampled_from([0.01, 0.03, 0.2, 0.34, 0.6, 0.99, 1.0]), st.integers(0, 99), st.text(max_size=3))
def test_spot_checks_are_at_least_their_share_and_always_the_same(share: float, seed: int, node: str) -> None:
    chosen = [hop for hop in range(400) if is_compared(node, hop, None, share, seed)]
    assert chosen[:3] == [0, 1, 2]
    assert 400 * share - 1 <= len(chosen) <= 400 * share + 4  # the first three are added, and a run may be cut off
    assert max(np.diff(chosen)) < 2 / share + 1
    assert all(is_compared(node, 300 + number, number, share, seed) for number in range(7, 100, 8))


def gaps(values: Sequence[float]) -> list[list[float]]:
    return [[abs(a - b) for a in values] for b in values]


@pytest.mark.parametrize(
    ("nodes", "values", "right", "wrong"),
    [
        ("ab", [1, 1], "ab", ""),
        ("ab", [1, 2], "", ""),
        ("abc", [1, 2, 1], "ac", "b"),
        ("abc", [1, 2, 3], "", ""),
        ("abcd", [1, 2, 1, 2], "", ""),
        ("aba", [1, 2, 3], "", "a"),
        ("aba", [1, 2, 1], "", ""),
        ("aa", [1, 1], "", ""),
        ("abca", [1, 2, 2, 3], "bc", "a"),
        (["a", "b", ROUTER], [1, 2, 2], "b", "a"),  # the router's own layers decide
        (["a", "b", ROUTER], [1, 1, 2], "", "ab"),
    ],
)
def test_who_is_right(nodes: Sequence[str], values: list[float], right: str, wrong: str) -> None:
    assert judge([*nodes], gaps(values), 0.1) == Judgement(frozenset(right), frozenset(wrong))


IN = torch.tensor([[3.0, 4.0]])
HONEST, WRONG = 1.2 * IN, 0.0 * IN


def test_rounding_is_tolerated_and_little_else() -> None:
    assert tolerance(4096, 3, 2.0**-23) < 1e-3
    assert tolerance(4096, 3, 2.0**-7) == 0.05


class Recorded:
    def __init__(self, again: Mapping[str, torch.Tensor]) -> None:
        self.members = NodeRecords(lambda: 0.0)
        self.again = again
        for name in again:
            self.members.join(name, [RemoteLayer(0)])

    async def once(self, node: str, hop: Hop, *, leaves: bool) -> Reply:
        return answered(node, self.again[node])


def answered(node: str, state: torch.Tensor) -> Reply:
    return Reply(node, "request", 0, 0, to_array(state), 0.0)


def hop() -> Hop:
    visits = (RemoteVisit(0, RemoteLayer(0)),)
    return Hop("request", 0, visits, Pass(0, to_array(IN), Arguments((), (), (), ())))


def test_who_is_proved_wrong_is_named_until_it_is_gone_and_has_a_new_beginning_then() -> None:
    calls = Recorded({"a": WRONG, "b": HONEST, "c": HONEST})
    comparison = ReplicaComparison(calls, 1.0, 0, None)  # type: ignore[arg-type]

    def wrong(answer: torch.Tensor) -> frozenset[str]:
        return asyncio.run(comparison.wrong("a", hop(), hop(), answered("a", answer)))

    reason = "a: its answer to layers 0 to 0 contradicts that of b and c"
    assert wrong(WRONG) == {"a"}
    assert (calls.members["a"].state, calls.members["a"].reason) == ("quarantined", reason)
    assert not calls.members.change("a", "live", "returned", "a computes again")
    assert wrong(WRONG) == {"a"}
    assert [event.kind for event in calls.members.events if event.node == "a"] == ["joined", "quarantined"]
    calls.members.change("a", "gone", "lost", "a is gone: is dead")
    assert wrong(WRONG) == {"a"}
    assert calls.members["a"].state == "gone", "it may be mended when it comes back, and is asked whether it computes"
    calls.members.change("a", "live", "returned", "a computes again")
    assert wrong(HONEST) == frozenset()
    assert calls.members["a"].state == "live"
