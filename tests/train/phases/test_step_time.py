"""The steps of phases are timed against those of uniform training, and nothing is changed by that."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from layerwise.plan.schedule import GrowthSchedule, ModelCost, Phase
from layerwise.stack import load
from layerwise.train.phases import step_time
from layerwise.train.recipe import Settings
from layerwise.train.training import Base
from train.tiny_models import tiny_llama, tiny_text


def test_phases_are_timed_against_uniform_within_each_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine is twice as slow every other round; the phase takes 0.7 of a uniform step in all of them."""
    schedule = GrowthSchedule("two", 3, (Phase("top", 0.5, (2,), embedding=False), Phase("all", 0.5, (0, 1, 2))))
    turns: list[int] = []

    def seconds(make: Any, steps: Sequence[int]) -> dict[int, float]:
        table = make(Path("unused"), {}).runner.step_schedule
        turns.extend(table.number(step) for step in steps)
        assert not any(table.begins(step) for step in steps), "what begins a phase is no part of its steps"
        pace = {(2,): 0.7, (0, 1, 2): 1.0}
        return {step: pace[table.phase(step).trains] * (1 + at // 3 % 2) for at, step in enumerate(steps)}

    monkeypatch.setattr(step_time, "seconds_of_steps", seconds)
    assert _slowness(schedule) == pytest.approx((0.7, 1.0))
    rounds = [turns[first : first + 3] for first in range(0, len(turns), 3)]
    assert all(sorted(each) == [0, 1, 2] for each in rounds)
    assert len(set(map(tuple, rounds))) > 2


def test_timing_runs_every_phase_in_a_model_of_its_own() -> None:
    last = Phase("last", 0.5, (0, 1, 2), copies=((2, 0),), redraw=(1,), drop=(0.0, 0.5))
    schedule = GrowthSchedule("grown", 3, (Phase("core", 0.5, (0,), present=(0, 1)), last))
    opened: list[Any] = []

    def opener() -> Any:
        opened.append(load(tiny_llama()))
        return opened[-1]

    ratios = _slowness(schedule, Base(opener, "x"))
    assert len(opened) == 1
    assert len(ratios) == 2
    assert min(ratios) > 0
    for name, weight in tiny_llama().state_dict().items():
        torch.testing.assert_close(opened[0].model.state_dict()[name], weight)


def _slowness(schedule: GrowthSchedule, base: Base | None = None) -> tuple[float, ...]:
    cost = ModelCost((1.0,) * 3, embedding=0.0, head=1.0)
    chosen = base or Base(lambda: load(tiny_llama()), "x")
    return step_time.relative_step_times(
        chosen, tiny_text(), schedule, cost, Settings(batch_size=8, gradient_accumulation_steps=2), {"use_cpu": True}
    )
