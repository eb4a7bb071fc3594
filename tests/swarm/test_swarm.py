"""A swarm equals a single process for every plan and after failures."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image

from conftest import tiny_llama
from layerwise.errors import SwarmError, UnsupportedModelError
from layerwise.models import ElcConfig, ElcForMaskedLM
from layerwise.plan import Plan
from layerwise.stack import Stack, load
from layerwise.stack.inputs import example_inputs
from layerwise.swarm import Answer, Fault, Quorum, Schedule, SwarmSettings, gather, node_records
from layerwise.swarm.answer import Decoding
from layerwise.swarm.decoding import BatchedHead, decode
from layerwise.swarm.messages import Message, Refused, RemoteLayer, Response, RunLayers
from layerwise.swarm.nodes.local import LocalTransport
from layerwise.swarm.nodes.node import local_node
from layerwise.swarm.request import SwarmRequest
from layerwise.swarm.router import MAX_FAILURES
from swarm.driver import build_from_bytes, events
from tier import first_fast

IDS = torch.tensor([[5, 6, 7, 8, 9, 10]])


@pytest.fixture(scope="module")
def demo() -> Stack:
    return load("demo")


@pytest.fixture(scope="module")
def vision() -> Stack:
    return load("demo-vit")


def _generated(stack: Stack, plan: str, ids: torch.Tensor = IDS, tokens: int = 12) -> list[int]:
    with stack.under(plan), torch.inference_mode():
        mask = torch.ones_like(ids)
        return stack.model.generate(
            ids, attention_mask=mask, max_new_tokens=tokens, do_sample=False
        )[  # type: ignore
            0, ids.shape[1] :
        ].tolist()


@pytest.mark.parametrize(
    "plan",
    first_fast(
        ["0-3 (4 5|6 7):sum 8*3 9-11", "0-3 4.attn 5.mlp 6-11", "11-0", "0-5 2-5 6-11", "0-11", "0-3 (4|5|6) 7-11"], 2
    ),
)
def test_any_plan_equals_a_single_process(demo: Stack, plan: str) -> None:
    with gather(demo, 4, 2, plan=plan) as swarm:
        answer = swarm.generate(IDS, max_new_tokens=12, do_sample=False)
    assert list(answer.tokens) == _generated(demo, plan)
    assert answer.plan == str(Plan.parse(plan))
    assert (answer.missing, answer.expected.basis, answer.from_token) == ((), "complete", 0)


def test_a_seed_makes_sampling_reproducible(demo: Stack) -> None:
    decoding = Decoding(16, temperature=1.0, top_k=20, seed=4)

    with gather(demo, 2, 1) as swarm:
        *first, answer = swarm.run(_collect(swarm.stream([5, 6, 7], decoding, request="a")))
        *second, _ = swarm.run(_collect(swarm.stream([5, 6, 7], decoding, request="b")))
        *other, _ = swarm.run(_collect(swarm.stream([5, 6, 7], replace(decoding, seed=5), request="c")))
    assert first == second != other
    assert isinstance(answer, Answer)
    assert list(answer.tokens) == first


@pytest.mark.parametrize("decoding", [Decoding(6, 6), Decoding(6, 6, 1.0, seed=-7), Decoding(6, stop=(" a",))])
def test_another_swarm_continues_an_answer_exactly(demo: Stack, decoding: Decoding) -> None:
    with gather(demo, 2, 1) as swarm:
        *tokens, whole = swarm.run(_collect(swarm.stream([5, 6, 7], decoding, request="whole")))
        for made in range(1, len(tokens)):
            stream = swarm.stream([5, 6, 7], decoding, request=f"from {made}", made=tokens[:made])
            *rest, answer = swarm.run(_collect(stream))
            assert rest == tokens[made:]
            assert isinstance(answer, Answer)
            assert answer.finish == whole.finish  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "decoding",
    [
        *(Decoding(6, temperature=temperature) for temperature in (1e-320, 1e-5)),
        Decoding(6, temperature=1.0, seed=1, min_p=1.0),
    ],
)
def test_tiny_temperatures_are_greedy(demo: Stack, decoding: Decoding) -> None:
    """Logits divided by the temperature overflow; the smallest top_p also leaves only the most likely token."""
    with gather(demo, 2, 1) as swarm:
        *tokens, _ = swarm.run(_collect(swarm.stream([5, 6, 7], decoding, request="a")))
    assert tokens == _generated(demo, "0-11", torch.tensor([[5, 6, 7]]), tokens=6)


async def _collect(stream: object) -> list[int | Answer]:
    return [item async for item in stream]  # type: ignore[attr-defined]


def test_a_lost_layer_is_missing_and_returns(demo: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[tuple[object, ...]] = []
    monkeypatch.setattr(node_records.log, "log", lambda *record: logged.append(record))
    schedule = Schedule((Fault("node-1", "fail", 0.1, 3.0),))
    settings = SwarmSettings(health_seconds=0.5)
    with gather(demo, 4, 1, schedule=schedule, settings=settings) as swarm:
        answer = swarm.generate(IDS, max_new_tokens=20, do_sample=False)
        assert answer.plan == "0-2 6-11"
        assert answer.missing == (3, 4, 5)
        assert answer.expected.basis == "unknown"
        assert 0 < answer.from_token < 20
        swarm.run(asyncio.sleep(5.0))
        assert swarm.generate(IDS, max_new_tokens=4, do_sample=False).missing == ()
        overview = swarm.overview()
    assert (overview.completed, overview.degraded, overview.refused) == (2, 1, 0)
    assert overview.live_layers == tuple(range(12))
    assert events(swarm, ["lost"]) == ["node-1 failed: simulated failure"]
    assert (logging.WARNING, "node=%s %s: %s", "node-1", "lost", "node-1 failed: simulated failure") in logged


def test_a_lost_layer_is_replaced_by_another_model(demo: Stack) -> None:
    both = Stack.with_sources({"model": demo, "r0": demo})
    schedule = Schedule((Fault("node-1", "fail", 0.05),))
    settings = SwarmSettings(replacements=("r0",))
    with gather(both, 4, 1, settings=settings, schedule=schedule) as swarm:
        other = swarm.members["node-2"]
        swarm._transport.members["node-2"] = _build_node(both, swarm)  # type: ignore[attr-defined]
        other.layers = frozenset(swarm._transport.members["node-2"].layers)  # type: ignore[attr-defined]
        answer = swarm.generate(IDS, max_new_tokens=12, do_sample=False)
    assert answer.plan == "0-2 r0:3-5 6-11"
    assert list(answer.tokens) == _generated(demo, "0-11")
    assert (answer.missing, answer.expected.basis) == ((), "unknown")


def _build_node(stack: Stack, swarm: object) -> object:
    held = [RemoteLayer(layer) for layer in (6, 7, 8)] + [RemoteLayer(layer, "r0") for layer in (3, 4, 5)]
    return local_node("node-2", stack, held)


def test_classification_equals_a_single_process(vision: Stack) -> None:
    inputs = example_inputs(vision.model)
    assert inputs is not None
    with torch.inference_mode():
        logits = vision.model(**inputs).logits
    with gather(vision, 4, 2) as swarm:
        found, answer = swarm.outputs(**inputs)
        chances, _ = swarm.run(swarm.classify(Image.new("RGB", (40, 40), (255, 0, 0)), request="one"))
    assert sum(chances) == pytest.approx(1.0)
    assert len(chances) == len(swarm.labels)
    assert answer.is_complete
    assert torch.equal(found, logits)


def test_streamed_layers_are_sent_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("layerwise.swarm.supply.MAX_MESSAGE_BYTES", 1)
    tiny_llama().save_pretrained(tmp_path)
    whole, streamed = load(tmp_path), load(tmp_path, resident_layers=1)
    assert streamed.resident is not None
    with build_from_bytes(streamed, nodes=2, replicas=2) as swarm:
        assert streamed.resident.cost.most_layers == 1
        cost = streamed.resident.count()
        answers = [swarm.generate(IDS, max_new_tokens=12, do_sample=False) for _ in range(2)]
        assert cost.readings == 0
    assert [list(answer.tokens) for answer in answers] == [_generated(whole, "0-5")] * 2


def test_invalid_swarms_are_rejected(demo: Stack) -> None:
    with pytest.raises(SwarmError, match="quorum must be at most the 12 layers of the plan, got 13 layers"):
        gather(demo, 4, settings=SwarmSettings(quorum=Quorum(layers=13)))
    with gather(demo, 2, 1) as swarm, pytest.raises(SwarmError, match="does not support beam search"):
        swarm.generate(IDS, num_beams=3)


def test_dense_models_are_rejected_before_nodes_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = ElcForMaskedLM(ElcConfig(vocab_size=60, hidden_size=16, num_hidden_layers=3, num_attention_heads=2))
    monkeypatch.delattr("layerwise.swarm.gathering.RayTransport")
    for address in (None, "local"):
        with pytest.raises(UnsupportedModelError, match="cannot capture a pass of ElcForMaskedLM: its layers"):
            gather(load(model.eval()), 2, 1, address=address)


def test_a_node_that_refuses_every_call_is_abandoned(demo: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = LocalTransport.call

    async def refusing(self: LocalTransport, node: str, messages: Sequence[Message]) -> Sequence[Response]:
        (message,) = messages
        if node == "node-1" and isinstance(message, RunLayers) and not message.request.startswith("check"):
            await asyncio.sleep(3.0)  # the next check of its health comes first
            return [Refused(node, "not today")]
        return await calls(self, node, messages)

    monkeypatch.setattr(LocalTransport, "call", refusing)
    settings = SwarmSettings(health_seconds=0.5)
    with gather(demo, 4, 1, schedule=Schedule(), settings=settings) as swarm:
        answer = swarm.generate(IDS, max_new_tokens=2, do_sample=False)
    assert answer.missing == (3, 4, 5)


def test_a_pass_continues_without_a_node_that_failed_it(demo: Stack) -> None:
    """The node stays live for other requests; its layers are missing for this pass only."""
    with gather(demo, 4, 1) as swarm:
        request = SwarmRequest.create("request", swarm.plan)
        request.failures["node-1"] = MAX_FAILURES

        async def one_token() -> None:
            async for _ in decode(swarm.router, request, BatchedHead(demo), IDS, max_new_tokens=1, do_sample=False):
                pass

        swarm.run(one_token())
        assert swarm.members["node-1"].state == "live"
    assert str(request.live.running) == "0-2 6-11"
