"""Training arguments: what transformers has and takes, or a sentence; how examples are read by them; trackers."""

import multiprocessing
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from transformers import TrainingArguments

from layerwise.errors import TrainError
from layerwise.experiments.options.training import OptimizationOptions
from layerwise.train import arguments, fine_tuning
from layerwise.train.arguments import PREFETCHED, WORKERS, check_arguments, input_arguments, loader_arguments
from layerwise.train.fine_tuning import FineTuningConfig
from layerwise.train.pretrain import trainer as pretraining
from layerwise.train.pretrain.recipe import pretraining_recipe
from layerwise.train.recipe import Recipe, Settings
from layerwise.train.training import _arguments as training_arguments


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"use_cpu": True},
        {"use_cpu": True, "report_to": "none", "dataloader_num_workers": 2, "learning_rate": 1, "weight_decay": 0.1},
        {"use_cpu": True, "optim": "adafactor", "lr_scheduler_kwargs": {"num_cycles": 2}, "fsdp": ""},
    ],
)
def test_what_transformers_takes_passes(given: dict[str, Any]) -> None:
    check_arguments(given)


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ({"foo": 1}, "no training argument 'foo'"),
        ({"weight_deca": 1}, "did you mean weight_decay"),
        ({"learning_rate": "abc"}, "where a number belongs"),
        ({"learning_rate": float("nan")}, "where a number belongs"),
        ({"seed": 1.5}, "where a whole number belongs"),
        ({"seed": 10**30}, "where a whole number belongs"),
        ({"bf16": "maybe"}, "where true or false belongs"),
        ({"optim": "sgdd"}, "transformers refuses"),
        ({"output_dir": "x"}, "name the folder of the run with --run"),
        ({"report_to": ["wandbb", "tensorboard"]}, "no tracker 'wandbb'; did you mean "),
    ],
)
def test_what_it_does_not_take_is_a_sentence(given: dict[str, Any], part: str) -> None:
    with pytest.raises(TrainError) as refusal:
        check_arguments({"use_cpu": True, **given})
    assert part in str(refusal.value)
    assert len(str(refusal.value)) < 500


@pytest.fixture
def cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(16), raising=False)
    monkeypatch.setattr(multiprocessing, "get_start_method", lambda: "fork")


@pytest.fixture
def accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    there = lambda cpu: SimpleNamespace(device=SimpleNamespace(type="cpu" if cpu else "cuda"))  # noqa: E731
    monkeypatch.setattr(arguments, "PartialState", there)


@pytest.mark.usefixtures("cores")
def test_an_accelerator_has_workers_and_a_processor_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    ahead = {"dataloader_num_workers": WORKERS, "dataloader_prefetch_factor": PREFETCHED}
    assert loader_arguments("cuda") == {"dataloader_pin_memory": True, **ahead}
    assert loader_arguments("mps") == {"dataloader_pin_memory": False, **ahead}
    assert loader_arguments("cpu") == {"dataloader_pin_memory": False}
    assert loader_arguments("cuda", processes=4)["dataloader_num_workers"] == 3
    assert loader_arguments("cuda", processes=16)["dataloader_num_workers"] == 1
    monkeypatch.setattr(multiprocessing, "get_start_method", lambda: "spawn")
    assert loader_arguments("mps") == {"dataloader_pin_memory": False}
    assert loader_arguments("cuda", workers=0) == {"dataloader_pin_memory": True}
    assert loader_arguments("cpu", workers=2)["dataloader_num_workers"] == 2


@pytest.mark.usefixtures("cores", "accelerator")
def test_every_training_reads_by_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def made(**given: Any) -> list[TrainingArguments]:
        recipe, given = Recipe("plain", Settings()), {"use_cpu": False, **given}
        return [
            training_arguments(recipe, 100, 0, tmp_path, given),
            pretraining._arguments(pretraining_recipe("tiny"), 0, tmp_path, given),
        ]

    monkeypatch.setattr(arguments.MeasuredArguments, "__post_init__", lambda self: setattr(self, "_n_gpu", 0))
    tuned = fine_tuning._arguments(str(tmp_path), FineTuningConfig(), 1e-3, 0, "auto", "accuracy", 10)
    for each in [*made(), tuned]:
        assert (each.dataloader_num_workers, each.dataloader_prefetch_factor) == (WORKERS, PREFETCHED)
        assert each.dataloader_pin_memory
    for each in made(dataloader_num_workers=0, dataloader_pin_memory=False):
        assert (each.dataloader_num_workers, each.dataloader_prefetch_factor) == (0, None)
        assert not each.dataloader_pin_memory
    assert input_arguments({"use_cpu": True}) == {"dataloader_pin_memory": False}


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
