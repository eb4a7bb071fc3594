"""Checkpoints by the clock: written when it is time, resumed from wherever they lie, and nothing is changed."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from layerwise.results.training_record import TrainingRecord
from layerwise.stack import load
from layerwise.train.measured import TimedCheckpoints
from layerwise.train.recipe import Recipe, Settings
from layerwise.train.trainer import PlanTrainer
from layerwise.train.training import Base, train
from train.kinds import Noted, Stopped, watched
from train.tiny_models import same_weights, saved_weights, tiny_digits, tiny_vit

SETTINGS = Settings(epochs=6, batch_size=8, evals=2, learning_rate=1e-2, gradient_accumulation_steps=2)
"""18 steps, validated after 9 and 18; losses are recorded every second."""


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    found = SimpleNamespace(now=0.0)
    monkeypatch.setattr("layerwise.train.measured.time", SimpleNamespace(monotonic=lambda: found.now))
    own = PlanTrainer.training_step

    def stepping(self: PlanTrainer, *args: Any, **kwargs: Any) -> Any:
        found.now += 30
        return own(self, *args, **kwargs)

    monkeypatch.setattr(PlanTrainer, "training_step", stepping)
    return found


def trained(folder: Path, minutes: float | None = None) -> TrainingRecord:
    recipe = Recipe("plain", SETTINGS)
    arguments = {"use_cpu": True, "checkpoint_minutes": minutes, "save_total_limit": 9}
    return train(Base(lambda: load(tiny_vit()), "tiny"), tiny_digits(train=24), recipe, 1, folder, arguments=arguments)


def test_a_training_that_resumes_between_two_notes_ends_as_if_it_had_never_been_stopped(
    clock: Any, tmp_path: Path
) -> None:
    straight = trained(tmp_path / "straight")
    with watched(Noted(), 8), pytest.raises(Stopped):
        trained(tmp_path / "stopped", minutes=7)
    assert [path.name for path in (tmp_path / "stopped").glob("checkpoint-*")] == ["checkpoint-7"]
    resumed = trained(tmp_path / "stopped", minutes=7)
    assert resumed.history == straight.history
    assert resumed.best_step == straight.best_step
    assert same_weights(saved_weights(tmp_path / "stopped"), saved_weights(tmp_path / "straight"))


def test_any_checkpoint_starts_the_clock_anew_and_the_best_model_is_one_that_was_validated(
    clock: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved: list[int] = []
    own = PlanTrainer._save_checkpoint

    def noting(self: PlanTrainer, *args: Any) -> None:
        saved.append(self.state.global_step)
        own(self, *args)

    monkeypatch.setattr(PlanTrainer, "_save_checkpoint", noting)
    record = trained(tmp_path, minutes=4)
    assert saved == [4, 8, 9, 13, 17, 18]
    assert record.best_step in (9, 18)


def test_processes_look_at_the_clock_ever_more_often_and_all_of_them_save(monkeypatch: pytest.MonkeyPatch) -> None:
    now = SimpleNamespace(value=0.0)
    monkeypatch.setattr("layerwise.train.measured.time", SimpleNamespace(monotonic=lambda: now.value))
    told: list[list[Any]] = []
    monkeypatch.setattr("layerwise.train.measured.broadcast_object_list", lambda news: told.append([*news]) or told[-1])
    callback, args = TimedCheckpoints(minutes=10), SimpleNamespace(world_size=2)
    state, control = SimpleNamespace(global_step=0), SimpleNamespace(should_save=False)
    callback.on_train_begin(args, state, control)
    while not control.should_save:
        now.value += 6
        state.global_step += 1
        callback.on_step_end(args, state, control)
    assert state.global_step == 100
    assert len(told) < 12, "a hundred steps, and few words"
