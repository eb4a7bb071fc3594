"""Trackers are known and installed, or refused; and they are told what a training notes of its pace."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from transformers import TrainerCallback

from layerwise.errors import TrainError
from layerwise.experiments.options.training import OptimizationOptions
from layerwise.plan import Plan
from layerwise.stack import load
from layerwise.train.arguments import check_arguments
from layerwise.train.recipe import Recipe, Settings
from layerwise.train.trainer import PlanTrainer, positions
from layerwise.train.training import Base, train
from train.tiny_models import tiny_digits, tiny_llama, tiny_text, tiny_vit

INTEGRATIONS = "transformers.integrations.integration_utils"


def test_an_unknown_tracker_is_refused_with_the_near_matches() -> None:
    with pytest.raises(TrainError, match=r"no tracker 'wandbb'; did you mean .*wandb"):
        check_arguments({"report_to": ["wandbb", "tensorboard"]})


def test_a_tracker_that_is_not_installed_is_refused_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("layerwise.train.arguments.get_available_reporting_integrations", lambda: ["tensorboard"])
    with pytest.raises(TrainError, match=r"comet_ml is not installed.* pip install comet-ml"):
        check_arguments({"report_to": "comet_ml"})
    check_arguments({"report_to": "none"})


def test_trackers_are_options_and_an_argument_is_given_once() -> None:
    options = OptimizationOptions(track=("wandb", "tensorboard"), checkpoint_minutes=5.0)
    assert options.trainer_arguments("auto") == {"report_to": ["wandb", "tensorboard"], "checkpoint_minutes": 5.0}
    with pytest.raises(TrainError, match="--set report_to and an option of its own"):
        OptimizationOptions(track=("wandb",), set=("report_to=none",)).trainer_arguments("auto")


class Tracker(TrainerCallback):
    """Keeps what it is told."""

    told: list[dict[str, float]]

    def __init__(self) -> None:
        Tracker.told = []

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        Tracker.told.append(dict(logs))


def test_a_tracker_is_told_the_pace_and_its_run_ends_with_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[int] = []
    wandb = SimpleNamespace(run=object(), finish=lambda: ended.append(1))
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    monkeypatch.setitem(sys.modules[INTEGRATIONS].INTEGRATION_TO_CALLBACK, "wandb", Tracker)
    settings = Settings(epochs=2, batch_size=8, evals=1)
    record = train(
        Base(lambda: load(tiny_llama()), "tiny"), tiny_text(longest=8), Recipe("plain", settings), 1, tmp_path,
        arguments={"use_cpu": True, "report_to": ["wandb"], "peak_flops": 1e9},
    )  # fmt: skip
    told: dict[str, float] = {}
    for logs in Tracker.told:
        told |= logs
    pace = {"step_seconds", "data_wait", "examples_per_second", "tokens_per_second", "mfu", "peak_bytes"}
    assert pace <= told.keys()
    assert pace <= record.figures.keys()
    assert 0 < told["mfu"] < 1
    assert 0 <= told["data_wait"] < 1
    assert ended == [1]


def test_the_operations_of_a_pass_are_those_of_the_layers_that_ran() -> None:
    stack = load(tiny_vit())
    batch = tiny_digits().collate([tiny_digits().train[0]])
    assert positions(stack.model.config, batch) == 5, "four patches and a token"
    assert positions(load(tiny_llama()).model.config, {"input_ids": batch["pixel_values"]}) == 64
    assert positions(stack.model.config, {}) == 0
    trainer = SimpleNamespace(stack=stack)
    counts = []
    for plan in ("0-2", "0 2", "0 1*4 2"):
        trainer._plans = [Plan.parse(plan)]
        counts.append(PlanTrainer.floating_point_ops(trainer, batch))  # type: ignore[arg-type]
    layer = 6 * 5 * sum(weight.numel() for weight in stack.block(1).parameters())
    assert counts[0] - counts[1] == layer
    assert counts[2] - counts[0] == 3 * layer
