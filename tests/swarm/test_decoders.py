"""Every decoder of the zoo generates the same tokens on a swarm, also when nodes fail."""

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
from layerwise.swarm.gathering import gather
from layerwise.swarm.nodes import node
from layerwise.swarm.nodes.local import Fault, Schedule
from layerwise.swarm.settings import SwarmSettings
from swarm.driver import (
    NEW_TOKENS,
    build_from_bytes,
    decode_tokens,
    events,
    generate_tokens,
    inspect_model,
    options,
    prompts,
)
from tier import by_tier

PROMPTS = by_tier(fast=8, nightly=200)
FAST = frozenset({"llama"})
SLOW = EVERY_TAG | {"gemma2", "mamba"}
# Layers that read the keys and values of others cannot run on other machines.
UNLIKE = frozenset({"cpmant", "recurrent_gemma"})
EVERY_DECODER = every_type(
    fast=FAST, slow=SLOW - UNLIKE, of=[one for one in DECODERS if not one.reads and one.model_type not in UNLIKE]
)


def test_shared_key_value_layers_are_rejected() -> None:
    ids, _ = prompts(1)
    with pytest.raises(
        UnsupportedModelError, match=r"^cannot capture a pass of Gemma4ForCausalLM: its layers need the states"
    ):
        gather(inspect_model(specimen.build(named("gemma4_text")), ids), 5, 1, schedule=Schedule())
    gc.collect()


@pytest.mark.parametrize("name", sorted(UNLIKE))
def test_models_with_block_state_are_rejected(name: str) -> None:
    ids, _ = prompts(1)
    with pytest.raises(
        UnsupportedModelError, match=r"^the hidden states of \w+ change if it reads a text in two passes"
    ):
        gather(inspect_model(specimen.build(named(name)), ids), 5, 1, schedule=Schedule())


@EVERY_DECODER
def test_concurrent_requests_equal_single_ones(one: Specimen) -> None:
    model = specimen.build(one)
    ids, mask = prompts(4)
    stack = inspect_model(model, ids[:2])
    texts = [each[kept.bool()][None] for each, kept in zip(ids, mask, strict=True)]
    with build_from_bytes(stack, nodes=2) as swarm:

        async def at_once() -> list[Answer]:
            return await asyncio.gather(*(swarm.answer(each, **options(new_tokens=10)) for each in texts))

        written = [list(answer.tokens) for answer in swarm.run(at_once())]
    assert written == [generate_tokens(model, each, new_tokens=10)[0].tolist() for each in texts]


@EVERY_DECODER
def test_tokens_equal_a_single_process(one: Specimen) -> None:
    """Nodes build blocks from bytes; prompts differ in length, then half of the nodes fail."""
    model = specimen.build(one)
    ids, mask = prompts(PROMPTS)
    stack = inspect_model(model, ids[:2])
    with build_from_bytes(stack, nodes=3) as swarm:
        written, _ = decode_tokens(swarm, ids, mask)
    assert torch.equal(written, generate_tokens(model, ids, mask))

    ids = ids[:1]
    expected = generate_tokens(model, ids)
    failures = tuple(Fault(f"node-{number}", "fail", 0.011 + 0.008 * number) for number in range(2))
    with gather(stack, 4, 2, schedule=Schedule(failures)) as swarm:
        written, _ = decode_tokens(swarm, ids)
        assert events(swarm, ["lost"])
    assert torch.equal(written, expected)


@EVERY_DECODER
def test_a_lost_layer_is_removed_from_the_plan(one: Specimen) -> None:
    model = specimen.build(one)
    ids, _ = prompts(1)
    stack = inspect_model(model, ids)
    schedule = Schedule((Fault("node-2", "fail", 0.025),))

    settings = SwarmSettings(on_loss="recompute", spot_share=0.0)
    with gather(stack, 5, 1, schedule=schedule, settings=settings) as swarm:
        written, session = decode_tokens(swarm, ids)
    assert str(session.live.running) == "0 1 3 4"
    kept = next(number for number, live in enumerate(session.written) if live.missing)
    assert 0 < kept < written.shape[1]
    so_far = torch.cat([ids, written[:, :kept]], dim=1)
    with stack.under(session.live.running):
        rest = generate_tokens(model, so_far, new_tokens=written.shape[1] - kept)
    assert torch.equal(written[:, kept:], rest)


def test_a_node_that_forgets_its_cache_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted error: nodes that lose their caches recompute all tokens in every pass."""
    model = specimen.build(named("llama"))
    ids, mask = prompts(8)
    stack = inspect_model(model, ids[:2])
    with build_from_bytes(stack, nodes=3) as swarm:
        monkeypatch.setattr(node._Request, "cache", lambda self, visit, new_cache, kind: new_cache(kind))
        written, _ = decode_tokens(swarm, ids, mask)
        assert len(events(swarm, ["replayed"])) == NEW_TOKENS - 1
    assert torch.equal(written, generate_tokens(model, ids, mask))
