"""Pretraining on two processes over gloo: the batches are divided, the losses and the weights are those of one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from apart import ranks
from layerwise.results.training_record import MODEL, TrainingRecord
from once import made_once
from train.pretrain.test_pretraining import STEPS
from train.pretraining_script import train_all, train_watched

pytestmark = pytest.mark.slow

TRAININGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "accumulated": {"gradient_accumulation_steps": 2, "batch_size": 16},
    "stopped": {"stop": 5},
    "left": {"stop": 5, "ends": True},
    "joined": {},
    "in shards": {"sharded": True},
    "stopped in shards": {"sharded": True, "stop": 5},
}


RESUMED_AT = 4


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folders of all trainings as two processes held them."""

    def train(root: Path) -> None:
        train_watched(root / "joined", **TRAININGS["left"])
        ranks(train_all, {root / name: options for name, options in TRAININGS.items()})

    return made_once(tmp_path_factory, "pretraining-distributed", train)


def _losses(folder: Path) -> list[list[float]]:
    return [json.loads((folder / f"losses-{rank}.json").read_text()) for rank in (0, 1)]


def _means(both: list[list[float]]) -> list[float]:
    """Each process reports the loss of its half of the batch, scaled so that the mean is that of the whole."""
    return [sum(pair) / 2 for pair in zip(*both, strict=True)]


@pytest.mark.parametrize("name", ["plain", "accumulated"])
def test_two_processes_train_as_one_does(name: str, folders: Path, tmp_path: Path) -> None:
    train_watched(tmp_path, **TRAININGS[name])
    alone, both = json.loads((tmp_path / "losses-0.json").read_text()), _losses(folders / name)
    assert _means(both) == pytest.approx(alone, rel=1e-3)
    assert len(alone) == STEPS * TRAININGS[name].get("gradient_accumulation_steps", 1)
    one, two = TrainingRecord.read(tmp_path / MODEL), TrainingRecord.read(folders / name / MODEL)
    assert one is not None
    assert two is not None
    assert (two.steps, two.examples, two.figures["tokens"]) == (one.steps, one.examples, one.figures["tokens"])
    validated = [[entry.loss for entry in each.history if entry.kind == "validation"] for each in (one, two)]
    assert validated[1] == pytest.approx(validated[0], rel=1e-4)
    ours = load_file(folders / name / MODEL / "model.safetensors")
    for key, weight in load_file(tmp_path / MODEL / "model.safetensors").items():
        torch.testing.assert_close(ours[key], weight, rtol=1e-2, atol=1e-3, msg=key)


def test_resumed_both_go_on_as_they_would_have(folders: Path) -> None:
    resumed_at = 4
    whole = _losses(folders / "plain")
    assert _losses(folders / "stopped") == [losses[resumed_at:] for losses in whole]
    one, two = (load_file(folders / name / MODEL / "model.safetensors") for name in ("plain", "stopped"))
    assert all(torch.equal(one[key], two[key]) for key in one)


def test_a_model_in_shards_learns_what_the_whole_does(folders: Path) -> None:
    assert _means(_losses(folders / "in shards")) == pytest.approx(_means(_losses(folders / "plain")), rel=1e-3)
    one, two = (load_file(folders / each / MODEL / "model.safetensors") for each in ("plain", "in shards"))
    for key, weight in one.items():
        torch.testing.assert_close(two[key], weight, rtol=1e-2, atol=1e-3, msg=key)


def test_what_two_processes_began_one_ends_and_the_other_way_round(folders: Path, tmp_path: Path) -> None:
    whole = _means(_losses(folders / "plain"))[RESUMED_AT:]
    assert _means(_losses(folders / "joined")) == pytest.approx(whole, rel=1e-3)
    shutil.copytree(folders / "left", tmp_path / "left")
    train_watched(tmp_path / "left")
    assert json.loads((tmp_path / "left" / "losses-0.json").read_text()) == pytest.approx(whole, rel=1e-3)
