"""A thousand drawn schedules of faults: no request is lost, and answers name what the whole model would not write."""

from functools import partial
from typing import Any

import pytest

from layerwise.stack import Capture
from layerwise.swarm.nodes.local import Fault, Schedule
from layerwise.swarm.request import SwarmRequest
from swarm.chaos import Trial, violations
from tier import by_tier

RUNS = 100
"""Schedules per nightly test; the other tiers run only the first of the ten tests, with fewer."""


def broken(first: int = 0, runs: int = 12) -> str:
    return "\n".join(text for seed in range(first, first + runs) for text in violations(Trial.drawn(seed)))


@pytest.mark.parametrize(
    "first", [0, *(pytest.param(first, marks=pytest.mark.nightly) for first in range(RUNS, 1000, RUNS))]
)
def test_every_schedule_keeps_the_laws(first: int) -> None:
    assert not broken(first, by_tier(fast=10, nightly=RUNS))


@pytest.mark.slow
def test_the_schedules_put_every_rule_to_the_test() -> None:
    """The first schedules include harmless failures, missing layers, too many failures, and returns."""
    kinds = {event.kind for seed in range(40) for event in Trial.drawn(seed).run()[0].members.events}
    assert kinds >= {"completed", "lost", "late", "replayed", "degraded", "refused", "returned", "quarantined"}


def test_a_schedule_is_the_same_for_the_same_seed() -> None:
    first, again = (Trial.drawn(7) for _ in range(2))
    assert first == again
    assert first.run()[1] == again.run()[1]


def test_a_swarm_that_forgets_a_token_when_it_starts_over_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    trial = Trial(0, Schedule((Fault("node-0", "die", 0.015),)), health_seconds=3.0)
    assert not violations(trial)
    restart = SwarmRequest.restart

    def forgetful(self: SwarmRequest) -> Capture:
        recapture: Any = self.recapture
        ids, inputs = recapture.args
        self.recapture = partial(recapture.func, ids[:, 1:], {**inputs, "attention_mask": None})
        return restart(self)

    monkeypatch.setattr(SwarmRequest, "restart", forgetful)
    assert violations(trial)
