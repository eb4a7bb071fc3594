"""Steps of a training are timed in the order that is asked for, on the side."""

from pathlib import Path
from typing import Any

import pytest
from transformers import TrainerCallback

from layerwise.plan.schedule import GrowthSchedule, ModelCost, Phase
from layerwise.stack import load
from layerwise.train.pretrain.curriculum import Batches, CurriculumPhase
from layerwise.train.recipe import GrowthVariant, Settings, grown
from layerwise.train.step_timing import seconds_of_step, seconds_of_steps
from layerwise.train.training import Base, trainer_of
from train.tiny_models import tiny_llama, tiny_text

STEPS = 24
SCHEDULE = GrowthSchedule("halves", 3, (Phase("low", 0.5, (0,)), Phase("all", 0.5, (0, 1, 2))))


class Seen(TrainerCallback):
    def __init__(self) -> None:
        self.steps: list[int] = []

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.steps.append(state.global_step)


def making(seen: Seen, steps: int) -> Any:
    growth = GrowthVariant(SCHEDULE, steps, ModelCost((1.0,) * 3, 0.0, 1.0))
    recipe = grown(Settings(epochs=steps / 3, batch_size=8, evals=4), growth)

    def make(folder: Path, quiet: Any) -> Any:
        base = Base(lambda: load(tiny_llama(3)), "llama")
        trainer = trainer_of(base, tiny_text(), recipe, 0, folder, arguments={"use_cpu": True, **quiet})
        trainer.add_callback(seen)
        return trainer

    return make


def test_steps_are_timed_in_any_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    seen = Seen()
    taken = seconds_of_steps(making(seen, STEPS), [20, 3, 7])
    assert seen.steps == list(taken) == [0, 20, 3, 7]
    assert min(taken.values()) > 0
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("steps", [2, STEPS])
def test_the_second_step_has_a_price_since_the_first_warms_up(steps: int) -> None:
    seen = Seen()
    assert seconds_of_step(making(seen, steps)) > 0
    assert seen.steps == [0, 1]


def test_batches_of_chosen_steps_are_those_of_the_training() -> None:
    phases = [CurriculumPhase(8, 4, 0, 45, 100), CurriculumPhase(32, 1, 45, 50, 40)]
    plain, chosen = (Batches(phases, seed=3, passes=1) for _ in range(2))
    chosen.steps = [*range(49, 0, -7), 0]
    every, some = list(plain), list(chosen)
    assert some == [every[step] for step in chosen.steps]
    assert {batch[0].length for batch in some} == {8, 32}
