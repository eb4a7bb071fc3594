"""Wrong nodes are detected, reported and quarantined; correct ones never are."""

import asyncio

import pytest
import torch

from layerwise.swarm import Answer, Fault, Quorum, Schedule, Swarm, SwarmSettings, gather
from layerwise.swarm.checks import SpotChecks
from layerwise.swarm.messages import Array, RemoteLayer, RunLayers
from layerwise.swarm.node_records import NodeRecords
from layerwise.swarm.nodes.local import LocalTransport
from layerwise.swarm.wire import tolerance
from swarm.driver import events, generate_tokens, llama, prompts
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
@pytest.mark.parametrize("corruption", ["noise", "zeros", "another layer"])
@pytest.mark.parametrize("seed", range(by_tier(fast=1, nightly=10)))
def test_a_wrong_node_is_quarantined(corruption: str, replicas: int, seed: int) -> None:
    fault = Fault("node-1", "wrong", 0.0, corruption="zeros" if corruption == "zeros" else "noise")
    schedule = Schedule(() if corruption == "another layer" else (fault,), seed=seed)
    with gather(llama(), 2 * replicas, replicas, schedule=schedule) as swarm:
        if corruption == "another layer":
            transport = swarm._transport
            assert isinstance(transport, LocalTransport)
            node = transport.members["node-1"]
            first, second = node.layers[:2]
            held = node._blocks[second]
            node.add_layer(first, held)
        found = _requests_until_found(swarm, seed)
        assert found <= WITHIN
        assert _quarantined(swarm) == ["node-1"]
        assert swarm.members["node-1"].reason.startswith("node-1: its output of layers")


def test_tokens_of_a_later_quarantined_node_are_reported() -> None:
    """The node is detected in the first pass of its eighth request, while another one is running."""
    stack, (ids, _) = llama(), prompts(1)
    schedule = Schedule(tuple(Fault(f"node-{number}", "wrong", 0.05) for number in range(2)))
    settings = SwarmSettings(spot_share=0.001)
    with gather(stack, 4, 2, schedule=schedule, settings=settings) as swarm:
        swarm.generate(ids, request="before", max_new_tokens=3, do_sample=False)

        async def main() -> Answer:
            long = asyncio.ensure_future(swarm.answer(ids, request="meanwhile", max_new_tokens=60, do_sample=False))
            await asyncio.sleep(0.1)
            for number in range(8):
                await swarm.answer(ids, request=f"after-{number}", max_new_tokens=1, do_sample=False)
            return await long

        answer = swarm.run(main())
        found = [event for event in swarm.members.events if event.kind == "quarantined"]
        overview = swarm.overview()
    assert {event.node for event in found} <= {"node-0", "node-1"}
    assert {"before", "meanwhile"} <= {name for event in found for name in event.requests}
    assert answer.missing == ()
    assert answer.expected.basis == "unknown"
    assert answer.spans[-1].doubted
    assert overview.completed == 10


def test_identical_faults_are_detected() -> None:
    stack, (ids, _) = llama(), prompts(1)
    schedule = Schedule(tuple(Fault(f"node-{number}", "wrong", 0.0, corruption="zeros") for number in (1, 3)))
    settings = SwarmSettings(spot_share=1.0, quorum=Quorum(layers=1))
    with gather(stack, 4, 2, schedule=schedule, settings=settings) as swarm:
        answer = swarm.generate(ids, max_new_tokens=6, do_sample=False)
        assert _quarantined(swarm) == ["node-1", "node-3"]
    assert answer.missing == (3, 4)


def test_a_new_process_leaves_quarantine() -> None:
    """A new process under the same name is checked; the old one stays quarantined."""
    stack, (ids, _) = llama(), prompts(1)
    schedule = Schedule((Fault("node-1", "wrong", 0.0, 1.0), Fault("node-1", "fail", 20.3, 20.5)))
    states = []
    with gather(stack, 4, 2, schedule=schedule) as swarm:
        swarm.generate(ids, max_new_tokens=6, do_sample=False)
        for _ in range(3):
            states.append(swarm.members["node-1"].state)
            swarm.run(asyncio.sleep(15.0))
        answer = swarm.generate(ids, max_new_tokens=6, do_sample=False)
    assert states == ["quarantined", "quarantined", "live"]
    assert answer.is_complete


def test_correct_nodes_are_never_quarantined() -> None:
    for seed in range(by_tier(fast=1, nightly=100)):
        with gather(llama(), 4, 2, schedule=Schedule(jitter=0.3, seed=seed)) as swarm:
            assert _requests_until_found(swarm, seed) is None


@pytest.mark.parametrize("corruption", first_fast(["noise", "zeros"]))
@pytest.mark.parametrize("replicas", [1, 2, 3])
@pytest.mark.parametrize("seed", range(by_tier(fast=1, nightly=10)))
def test_full_comparison_returns_no_wrong_output(corruption: str, replicas: int, seed: int) -> None:
    """A replica or the router detects every wrong output."""
    stack, (ids, _) = llama(), prompts(1, seed=seed)
    schedule = Schedule((Fault("node-0", "wrong", 0.0, corruption=corruption),), seed=seed)
    settings = SwarmSettings(spot_share=1.0, quorum=Quorum(layers=1))
    with gather(stack, replicas + 1, replicas, schedule=schedule, settings=settings) as swarm:
        logits, answer = swarm.outputs(input_ids=ids)
        assert _quarantined(swarm) == ["node-0"]
    assert (answer.missing == ()) == (replicas > 1), "without a replica the layers of the node are missing"
    torch.testing.assert_close(logits, stack.logits(answer.plan, input_ids=ids), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_spot_checks_compare_a_share_of_requests(share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: dict[str, list[int]] = {}
    ask = SpotChecks._run_checker

    async def counted(self: SpotChecks, checker: str, call: RunLayers) -> Array | None:
        compared.setdefault(call.request.partition("/")[0], []).append(call.given.index)
        return await ask(self, checker, call)

    monkeypatch.setattr(SpotChecks, "_run_checker", counted)
    ids, _ = prompts(1)
    names = [f"text-{number}" for number in range(24)]
    with gather(llama(), 2, 2, schedule=Schedule(), settings=SwarmSettings(spot_share=share)) as swarm:
        for name in names:
            swarm.generate(ids, request=name, max_new_tokens=3, min_new_tokens=3, do_sample=False)
    whole = [name for name in names if compared.get(name) == [0, 1, 2]]
    assert [name for name in names if compared.get(name) == [0] or name in whole] == list(compared)
    assert {0.0: not compared, 0.3: 3 <= len(whole) <= 12, 1.0: whole == names}[share]
    if share == 0.3:
        assert names[0] in compared
        assert 1 <= len(set(compared) - set(whole)) <= 4


def test_the_router_decides_later_disagreements() -> None:
    """The request restarts with the router as the checker."""
    stack, (ids, _) = llama(), prompts(1)
    schedule = Schedule((Fault("node-0", "wrong", 0.03),))
    with gather(stack, 4, 2, schedule=schedule, settings=SwarmSettings(spot_share=1.0)) as swarm:
        answer = swarm.generate(ids, max_new_tokens=12, min_new_tokens=12, do_sample=False)
        assert _quarantined(swarm) == ["node-0"]
        assert events(swarm, ["replayed"])
    assert list(answer.tokens) == generate_tokens(stack.model, ids, new_tokens=12)[0].tolist()


def test_quarantine_ends_when_the_node_fails_and_tolerance_covers_only_rounding() -> None:
    records = NodeRecords(lambda: 0.0)
    records.join("a", [RemoteLayer(0)])
    assert records.change("a", "quarantined", "quarantined", "a is wrong")
    assert not records.change("a", "live", "returned", "a computes again")
    assert (records["a"].state, records["a"].reason) == ("quarantined", "a is wrong")
    assert [event.kind for event in records.events] == ["joined", "quarantined"]
    records.change("a", "gone", "lost", "a failed: simulated failure")
    assert not records.change("a", "quarantined", "quarantined", "a is wrong"), "it may be repaired when it returns"
    records.change("a", "live", "returned", "a computes again")
    assert records["a"].state == "live"

    assert tolerance(4096, 3, 2.0**-23) < 1e-3
    assert tolerance(4096, 3, 2.0**-7) == 0.05
