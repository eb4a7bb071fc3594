"""A thousand drawn schedules of faults: no request is lost, and no token is wrong where a replica was left."""

from __future__ import annotations

import pytest

from contracts.tiers import NIGHTLY
from layerwise.swarm.messages import Hop, Message, Response
from layerwise.swarm.nodes.local import Fault, Schedule
from layerwise.swarm.nodes.node import Node
from swarm import chaos
from swarm.chaos import Trial, violations
from tier import by_tier

RUNS = 40
"""Schedules of one test at night, which has twenty-five of them; the other tiers have the first one, of fewer."""

ONE_DEATH = Trial(0, Schedule((Fault("node-0", "die", 0.015),)), "keep", requests=1, new=4, health_seconds=3.0)


@pytest.mark.parametrize(
    "first",
    [
        0,
        *(pytest.param(first, marks=pytest.mark.nightly) for first in range(RUNS, 400, RUNS)),
        *(pytest.param(first, marks=NIGHTLY) for first in range(400, 1000, RUNS)),
    ],
)
def test_no_request_is_lost_and_no_token_is_wrong(first: int) -> None:
    runs = by_tier(fast=8, nightly=RUNS)
    broken = [text for seed in range(first, first + runs) for text in violations(Trial.drawn(seed))]
    assert not broken, "\n".join(broken)


@pytest.mark.slow
def test_the_schedules_put_every_rule_to_the_test() -> None:
    """Of the first schedules: some kill nobody that matters, some cost layers, some too many; nodes come back."""
    kinds = set()
    for seed in range(40):
        swarm, _ = chaos.run(Trial.drawn(seed))
        kinds |= {event.kind for event in swarm.members.events}
    assert kinds >= {"completed", "lost", "late", "replayed", "degraded", "refused", "returned"}


def test_a_schedule_is_the_same_for_the_same_seed() -> None:
    first, again = (Trial.drawn(7) for _ in range(2))
    assert first == again
    assert chaos.run(first)[1] == chaos.run(again)[1]


def test_a_swarm_that_does_not_replay_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes forget at once what a replay has left, and say that they know it."""
    assert not violations(ONE_DEATH)
    handle = Node.handle

    def forgetful(self: Node, message: Message) -> Response:
        answer = handle(self, message)
        if isinstance(message, Hop) and message.fresh and message.given.index:
            self._requests[message.request].forget(message.visits, message.given.index + 1)
        return answer

    monkeypatch.setattr(Node, "handle", forgetful)
    assert violations(ONE_DEATH)
