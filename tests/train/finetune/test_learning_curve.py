"""A learning curve changes nothing of the training that it follows, and its points are the model's own scores."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from transformers.utils import logging

from layerwise.errors import TrainError
from layerwise.train.fine_tuning import FineTuningConfig, curve_steps, fine_tune
from train.learners import planted, tiny_bert

ONCE = FineTuningConfig(learning_rates=(3e-3,), batch_size=16, epochs=2)


@pytest.mark.slow
def test_training_is_the_same_with_and_without_a_curve(tmp_path: Path) -> None:
    logging.disable_progress_bar()
    model, task = tiny_bert(tmp_path / "bert"), planted(64)
    plain, followed = (
        fine_tune(model, task, replace(ONCE, evals=evals), 0, device="cpu") for evals in (0, 3)
    )  # fmt: skip
    assert (plain.curve, plain.step_seconds) == ((), None)
    assert replace(followed, seconds=plain.seconds, curve=(), step_seconds=None) == plain
    assert [point.step for point in followed.curve] == [1, 2, 4], "two steps an epoch, and the points of the curve"
    assert max(point.score for point in followed.curve if point.step != 1) == followed.selection
    assert followed.step_seconds is not None
    assert followed.step_seconds > 0


def test_points_stand_evenly_in_the_logarithm() -> None:
    assert sorted(curve_steps(100, 3)) == [1, 10, 100]
    assert curve_steps(2, 10) == {1, 2}


def test_fewer_points_than_none_are_refused() -> None:
    with pytest.raises(TrainError, match="learning curve of -1"):
        replace(ONCE, evals=-1)
