"""A trial takes steps from all over a training, stops in time, and writes nothing where the training will be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from transformers import TrainerCallback

from layerwise.plan.schedule import GrowthSchedule, ModelCost, Phase
from layerwise.stack import load
from layerwise.train import trial_steps
from layerwise.train.pretrain.curriculum import Batches, CurriculumPhase
from layerwise.train.recipe import GrowthVariant, Settings, grown
from layerwise.train.training import Base, trainer_of
from layerwise.train.trial_steps import spread, training_times
from train.tiny_models import tiny_llama, tiny_text

STEPS = 24
SCHEDULE = GrowthSchedule("halves", 3, (Phase("low", 0.5, (0,)), Phase("all", 0.5, (0, 1, 2))))
RECIPE = grown(
    Settings(epochs=STEPS / 3, batch_size=8, evals=4), GrowthVariant(SCHEDULE, STEPS, ModelCost((1.0,) * 3, 0.0, 1.0))
)


class Seen(TrainerCallback):
    def __init__(self) -> None:
        self.steps: list[int] = []

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.steps.append(state.global_step)


def test_a_trial_is_a_sample_of_all_phases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    seen = Seen()

    def make(folder: Path, quiet: Any) -> Any:
        base = Base(lambda: load(tiny_llama(3)), "llama")
        trainer = trainer_of(base, tiny_text(), RECIPE, 0, folder, arguments={"use_cpu": True, **quiet})
        trainer.add_callback(seen)
        return trainer

    monkeypatch.setattr(trial_steps, "_SHARE", 1000.0)
    times = training_times(make, 1000.0)
    assert len(seen.steps) == STEPS, "no more steps than there are"
    assert max(seen.steps) < STEPS
    first = [step < STEPS / 2 for step in seen.steps[:8]]
    assert 2 <= sum(first) <= 6, "each beginning of the sample has both phases"
    assert (times.steps, times.validations, times.checkpoints) == (STEPS, 4, 4)
    assert min(times.opening, times.step, times.validation, times.checkpoint) > 0
    weights = sum(each.numel() for each in tiny_llama(3).parameters())
    assert times.model_bytes == 4 * weights
    assert times.checkpoint_bytes > 3 * 4 * weights * 0.9, "the weights and two moments"
    assert not list(tmp_path.iterdir())
    seen.steps.clear()
    assert training_times(make, 0.0).timed == 1
    assert len(seen.steps) == 2, "a step that warms up has no price"


def test_batches_of_a_sample_are_those_of_their_steps() -> None:
    phases = [CurriculumPhase(8, 4, 0, 45, 100), CurriculumPhase(32, 1, 45, 50, 40)]
    plain, sampled = (Batches(phases, seed=3, passes=1) for _ in range(2))
    sampled.steps = [spread(number, 50) for number in range(50)]
    every, sample = list(plain), list(sampled)
    assert sample == [every[step] for step in sampled.steps]
    assert {batch[0].length for batch in sample[:12]} == {8, 32}
