"""Eight nodes, eight streams, two hundred requests: half the nodes die or pause, and what is left of the answers."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from contracts.specimen import DEPTH
from layerwise.swarm.answer import Decoding
from layerwise.swarm.gathering import gather
from layerwise.swarm.nodes.local import Fault, Kind, Schedule
from layerwise.swarm.rehearsal import Ended, Load, answer_all, slowest_token
from layerwise.swarm.settings import SwarmSettings
from layerwise.swarm.swarm import Swarm
from swarm.chaos import decoder, prompt, undisturbed
from tier import by_tier

NEW = 6
REQUESTS = by_tier(fast=16, nightly=200)
STREAMS = 8
PROMPTS = [prompt(number % 20) for number in range(REQUESTS)]
HOP = LAYER = 0.001
LOAD = Load(STREAMS, DEPTH, 2, max(map(len, PROMPTS)), NEW, HOP, LAYER)


def rehearsed(faults: Sequence[Fault], settings: SwarmSettings) -> tuple[Swarm, tuple[Ended, ...]]:
    """All requests on eight nodes with two replicas."""
    swarm = gather(decoder(), 8, 2, settings=settings, schedule=Schedule(tuple(faults), HOP, LAYER))
    with swarm:
        return swarm, answer_all(swarm, PROMPTS, Decoding(NEW), STREAMS)


def half(kind: Kind, seed: int) -> tuple[Fault, ...]:
    """One of the two nodes of every part of the layers fails, each at a moment of its own."""
    chance = random.Random(seed)
    return tuple(Fault(f"node-{part + 4 * chance.randrange(2)}", kind, chance.uniform(0.01, 0.2)) for part in range(4))


@pytest.mark.parametrize("kind", ["die", "pause"])
def test_half_of_the_nodes_may_die_or_stand_still(kind: Kind) -> None:
    settings = SwarmSettings(first_deadline=1.0, spot_share=0.0)
    swarm, ended = rehearsed(half(kind, seed=1), settings)
    assert len(ended) == REQUESTS
    assert [each.answer.tokens if each.answer else each.refusal for each in ended] == [
        undisturbed(ids, NEW) for ids in PROMPTS
    ]
    assert {event.kind for event in swarm.members.events} >= {"replayed", "late" if kind == "pause" else "lost"}
    assert max(max(each.seconds) for each in ended) < slowest_token(LOAD, settings, losses=4)


def test_the_bound_grows_with_the_losses_and_with_the_history() -> None:
    longer = Load(STREAMS, DEPTH, 2, 40, 400, HOP, LAYER)
    bounds = [slowest_token(LOAD, SwarmSettings(), losses) for losses in range(4)]
    assert bounds == sorted(bounds)
    assert slowest_token(longer, SwarmSettings(), 1) > bounds[1]
