"""The steps of phases are timed against those of uniform training, and nothing is changed by that."""

from __future__ import annotations

from typing import Any

import pytest

from layerwise.errors import TrainError
from layerwise.plan.schedule import GrowthSchedule, ModelCost, Phase, preset
from layerwise.stack import load
from layerwise.train.phases import step_time
from layerwise.train.recipe import Settings
from layerwise.train.training import Base
from train.tiny_models import tiny_llama, tiny_text


def test_phases_are_timed_against_uniform_within_each_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine is twice as slow in every other round; the phase takes 0.7 of a uniform step in all of them."""
    schedule = GrowthSchedule("two", 3, (Phase("top", 0.5, (2,), embedding=False), Phase("all", 0.5, (0, 1, 2))))

    def seconds(self: Any, grows: Any, step: int, number: int) -> float:
        return (0.7 if grows.step_schedule.phase(step).name == "top" else 1.0) * (1 + number % 2)

    monkeypatch.setattr(step_time._TimedTraining, "seconds", seconds)
    assert _slowness(schedule) == pytest.approx((0.7, 1.0))


def test_timing_runs_every_phase_and_changes_no_weight() -> None:
    schedule = preset("published", 3)
    opened: list[Any] = []

    def opener() -> Any:
        opened.append(load(tiny_llama()))
        return opened[-1]

    found = _slowness(schedule, Base(opener, "x"))
    assert len(found) == len(schedule.phases)
    assert min(found) > 0
    fresh = tiny_llama().state_dict()
    assert all(weight.equal(fresh[name]) for name, weight in opened[0].model.state_dict().items())


def test_states_on_disk_cannot_be_timed_by_a_few_steps() -> None:
    schedule = GrowthSchedule(
        "kept", 3, (Phase("all", 0.5, (0, 1, 2)), Phase("top", 0.5, (2,), embedding=False, cached=True))
    )
    with pytest.raises(TrainError, match="give --match flops or --match tokens"):
        _slowness(schedule)


def _slowness(schedule: GrowthSchedule, base: Base | None = None) -> tuple[float, ...]:
    cost = ModelCost((1.0,) * 3, embedding=0.0, head=1.0)
    chosen = base or Base(lambda: load(tiny_llama()), "x")
    return step_time.relative_step_times(
        chosen, tiny_text(), schedule, 40, cost, Settings(batch_size=8, gradient_accumulation_steps=2)
    )
