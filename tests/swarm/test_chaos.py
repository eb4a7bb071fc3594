"""Random fault schedules: no request is lost, and answers report all tokens that the original model would not write."""

from functools import partial
from typing import Any

import pytest

from layerwise.stack import Capture
from layerwise.swarm.nodes.local import Fault, Schedule
from layerwise.swarm.request import SwarmRequest
from swarm.chaos import Trial, find_violations
from tier import by_tier

RUNS = 100
"""Schedules per nightly test; the other tiers run only the first of the ten tests, with fewer."""


def find_broken(first: int = 0, runs: int = 12) -> str:
    return "\n".join(text for seed in range(first, first + runs) for text in find_violations(Trial.draw(seed)))


@pytest.mark.parametrize(
    "first", [0, *(pytest.param(first, marks=pytest.mark.nightly) for first in range(RUNS, 1000, RUNS))]
)
def test_drawn_fault_schedules_break_no_law(first: int) -> None:
    assert not find_broken(first, by_tier(fast=10, nightly=RUNS))


@pytest.mark.slow
def test_drawn_schedules_cover_every_event() -> None:
    """The first schedules include harmless failures, missing layers, too many failures, and returns."""
    kinds = {event.kind for seed in range(40) for event in Trial.draw(seed).run()[0].members.events}
    assert kinds >= {"completed", "lost", "late", "replayed", "degraded", "refused", "returned", "quarantined"}


def test_trials_are_reproducible() -> None:
    first, again = (Trial.draw(7) for _ in range(2))
    assert first == again
    assert first.run()[1] == again.run()[1]


def test_a_planted_restart_error_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    trial = Trial(0, Schedule((Fault("node-0", "fail", 0.015),)), health_seconds=3.0)
    assert not find_violations(trial)
    restart = SwarmRequest.restart

    def forgetful(self: SwarmRequest) -> Capture:
        recapture: Any = self.recapture
        ids, inputs = recapture.args
        self.recapture = partial(recapture.func, ids[:, 1:], {**inputs, "attention_mask": None})
        return restart(self)

    monkeypatch.setattr(SwarmRequest, "restart", forgetful)
    assert find_violations(trial)
