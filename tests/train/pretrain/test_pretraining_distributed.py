"""Pretraining on two processes over gloo: the batches are divided, the losses and the weights are those of one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from layerwise.results.training_record import MODEL, TrainingRecord
from once import made_once
from train.pretrain.test_pretraining import STEPS
from train.pretraining_script import train_watched
from train.test_distributed import launched

pytestmark = pytest.mark.slow

TRAININGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "accumulated": {"gradient_accumulation_steps": 2, "batch_size": 16},
    "stopped": {"stop": 5},
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folders of all trainings as two processes held them."""

    def train(root: Path) -> None:
        trainings = [{"folder": str(root / name), **options} for name, options in TRAININGS.items()]
        launched("pretraining_script.py", json.dumps(trainings))

    return made_once(tmp_path_factory, "pretraining-distributed", train)


def _losses(folder: Path) -> list[list[float]]:
    return [json.loads((folder / f"losses-{rank}.json").read_text()) for rank in (0, 1)]


@pytest.mark.parametrize("name", ["plain", "accumulated"])
def test_two_processes_train_as_one_does(name: str, folders: Path, tmp_path: Path) -> None:
    train_watched(tmp_path, **TRAININGS[name])
    alone, both = json.loads((tmp_path / "losses-0.json").read_text()), _losses(folders / name)
    # Each process reports the loss of its half of the batch, scaled so that the mean is that of the whole.
    assert [sum(pair) / 2 for pair in zip(*both, strict=True)] == pytest.approx(alone, rel=1e-3)
    assert len(alone) == STEPS * TRAININGS[name].get("gradient_accumulation_steps", 1)
    one, two = TrainingRecord.read(tmp_path / MODEL), TrainingRecord.read(folders / name / MODEL)
    assert one is not None
    assert two is not None
    assert (two.steps, two.examples, two.figures["tokens"]) == (one.steps, one.examples, one.figures["tokens"])
    ours = load_file(folders / name / MODEL / "model.safetensors")
    for key, weight in load_file(tmp_path / MODEL / "model.safetensors").items():
        torch.testing.assert_close(ours[key], weight, rtol=1e-2, atol=1e-3, msg=key)


def test_resumed_both_go_on_as_they_would_have(folders: Path) -> None:
    resumed_at = 4
    whole = _losses(folders / "plain")
    assert _losses(folders / "stopped") == [losses[resumed_at:] for losses in whole]
    one, two = (load_file(folders / name / MODEL / "model.safetensors") for name in ("plain", "stopped"))
    assert all(torch.equal(one[key], two[key]) for key in one)
