"""How examples are read: workers where there is an accelerator, what a user asks for everywhere."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from transformers import TrainingArguments

from layerwise.train import arguments, fine_tuning
from layerwise.train.arguments import PREFETCHED, WORKERS, input_arguments, loader_arguments
from layerwise.train.fine_tuning import FineTuningConfig
from layerwise.train.pretrain import trainer as pretraining
from layerwise.train.pretrain.recipe import pretraining_recipe
from layerwise.train.recipe import Recipe, Settings
from layerwise.train.training import _arguments as training_arguments


@pytest.fixture(autouse=True)
def cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of sixteen cores that starts processes as copies."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(16), raising=False)
    monkeypatch.setattr(multiprocessing, "get_start_method", lambda: "fork")


@pytest.fixture
def accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    """The type of the device is that of an accelerator, unless a processor is asked for."""
    there = lambda cpu: SimpleNamespace(device=SimpleNamespace(type="cpu" if cpu else "cuda"))  # noqa: E731
    monkeypatch.setattr(arguments, "PartialState", there)


def test_an_accelerator_has_workers_and_a_processor_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    ahead = {"dataloader_num_workers": WORKERS, "dataloader_prefetch_factor": PREFETCHED}
    assert loader_arguments("cuda") == {"dataloader_pin_memory": True, **ahead}
    assert loader_arguments("mps") == {"dataloader_pin_memory": False, **ahead}
    assert loader_arguments("cpu") == {"dataloader_pin_memory": False}
    assert loader_arguments("cuda", processes=4)["dataloader_num_workers"] == 3
    assert loader_arguments("cuda", processes=16)["dataloader_num_workers"] == 1
    monkeypatch.setattr(multiprocessing, "get_start_method", lambda: "spawn")
    assert loader_arguments("mps") == {"dataloader_pin_memory": False}


def test_what_is_asked_for_goes_before_the_defaults() -> None:
    assert loader_arguments("cuda", workers=0) == {"dataloader_pin_memory": True}
    assert loader_arguments("cpu", workers=2)["dataloader_num_workers"] == 2


@pytest.mark.usefixtures("accelerator")
def test_every_training_reads_by_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def made(**given: Any) -> list[TrainingArguments]:
        recipe, given = Recipe("plain", Settings()), {"use_cpu": False, **given}
        return [
            training_arguments(recipe, 100, 0, tmp_path, given),
            pretraining._arguments(pretraining_recipe("tiny"), 0, tmp_path, given),
        ]

    monkeypatch.setattr(fine_tuning.TrainingArguments, "__post_init__", lambda self: setattr(self, "_n_gpu", 0))
    tuned = fine_tuning._arguments(str(tmp_path), FineTuningConfig(), 1e-3, 0, "auto", "accuracy", 10)
    for each in [*made(), tuned]:
        assert (each.dataloader_num_workers, each.dataloader_prefetch_factor) == (WORKERS, PREFETCHED)
        assert each.dataloader_pin_memory
    for each in made(dataloader_num_workers=0, dataloader_pin_memory=False):
        assert (each.dataloader_num_workers, each.dataloader_prefetch_factor) == (0, None)
        assert not each.dataloader_pin_memory
    assert input_arguments({"use_cpu": True}) == {"dataloader_pin_memory": False}
