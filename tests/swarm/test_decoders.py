"""Every decoder of the zoo writes on a swarm what it writes in one process, also when nodes die."""

import asyncio
import gc

import pytest
import torch

from contracts import specimen
from contracts.specimen import Specimen
from contracts.tiers import EVERY_TAG, every_type
from contracts.zoo import DECODERS, named
from layerwise.errors import UnsupportedModelError
from layerwise.swarm.answer import Answer
from layerwise.swarm.nodes import node
from layerwise.swarm.nodes.local import Fault, Schedule
from layerwise.swarm.settings import SwarmSettings
from swarm.driver import NEW_TOKENS, decoded, events, from_bytes, gather, generated, inspected, options, prompts
from tier import by_tier

PROMPTS = by_tier(fast=8, nightly=200)
FAST = frozenset({"llama"})
SLOW = EVERY_TAG | {"gemma2", "mamba"}
# Layers that read keys and values of others cannot lie on other machines than those: a swarm refuses them.
UNLIKE = frozenset({"cpmant", "recurrent_gemma"})
EVERY_DECODER = every_type(
    fast=FAST, slow=SLOW - UNLIKE, of=[one for one in DECODERS if not one.reads and one.model_type not in UNLIKE]
)


def test_layers_that_read_keys_and_values_of_others_are_refused() -> None:
    ids, _ = prompts(1)
    with pytest.raises(
        UnsupportedModelError, match=r"^cannot capture a pass of Gemma4ForCausalLM: its layers read what"
    ):
        gather(inspected(specimen.build(named("gemma4_text")), ids), 5, 1, schedule=Schedule())
    gc.collect()


@pytest.mark.parametrize("name", sorted(UNLIKE))
def test_texts_that_are_read_otherwise_in_two_passes_are_refused(name: str) -> None:
    ids, _ = prompts(1)
    with pytest.raises(UnsupportedModelError, match=r"^\w+ reads a text otherwise in one pass than in two with"):
        gather(inspected(specimen.build(named(name)), ids), 5, 1, schedule=Schedule())


@EVERY_DECODER
def test_requests_at_once_write_what_each_writes_alone(one: Specimen) -> None:
    model = specimen.build(one)
    ids, mask = prompts(4)
    stack = inspected(model, ids[:2])
    texts = [each[kept.bool()][None] for each, kept in zip(ids, mask, strict=True)]
    with from_bytes(stack, nodes=2) as swarm:

        async def at_once() -> list[Answer]:
            return await asyncio.gather(*(swarm.answer(each, **options(new_tokens=10)) for each in texts))

        written = [list(answer.tokens) for answer in swarm.run(at_once())]
    assert written == [generated(model, each, new_tokens=10)[0].tolist() for each in texts]


@EVERY_DECODER
def test_tokens_are_those_of_one_process(one: Specimen) -> None:
    """Nodes build blocks from bytes; prompts differ in length, then half of the nodes fail."""
    model = specimen.build(one)
    ids, mask = prompts(PROMPTS)
    stack = inspected(model, ids[:2])
    with from_bytes(stack, nodes=3) as swarm:
        written, _ = decoded(swarm, ids, mask)
    assert torch.equal(written, generated(model, ids, mask))

    ids = ids[:1]
    undisturbed = generated(model, ids)
    deaths = tuple(Fault(f"node-{number}", "die", 0.011 + 0.008 * number) for number in range(2))
    with gather(stack, 4, 2, schedule=Schedule(deaths)) as swarm:
        written, _ = decoded(swarm, ids)
        assert events(swarm, ["lost"])
    assert torch.equal(written, undisturbed)


@EVERY_DECODER
def test_a_lost_layer_leaves_the_plan_without_it(one: Specimen) -> None:
    model = specimen.build(one)
    ids, _ = prompts(1)
    stack = inspected(model, ids)
    schedule = Schedule((Fault("node-2", "die", 0.025),))

    settings = SwarmSettings(on_loss="recompute", spot_share=0.0)
    with gather(stack, 5, 1, schedule=schedule, settings=settings) as swarm:
        written, session = decoded(swarm, ids)
    assert str(session.live.running) == "0 1 3 4"
    kept = next(number for number, live in enumerate(session.written) if live.missing)
    assert 0 < kept < written.shape[1]
    so_far = torch.cat([ids, written[:, :kept]], dim=1)
    with stack.under(session.live.running):
        rest = generated(model, so_far, new_tokens=written.shape[1] - kept)
    assert torch.equal(written[:, kept:], rest)


def test_a_node_that_forgets_its_slot_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted error: nodes whose caches are new at every pass are given all tokens each time."""
    model = specimen.build(named("llama"))
    ids, mask = prompts(8)
    stack = inspected(model, ids[:2])
    with from_bytes(stack, nodes=3) as swarm:
        monkeypatch.setattr(node._Request, "cache", lambda self, visit, new_cache, kind: new_cache(kind))
        written, _ = decoded(swarm, ids, mask)
        assert len(events(swarm, ["replayed"])) == NEW_TOKENS - 1
    assert torch.equal(written, generated(model, ids, mask))
