"""Growth training on two processes over gloo: what rests rests on both, and the losses are those of one process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from layerwise.results.training_record import MODEL, TrainingRecord
from once import made_once
from train.phases.growth_script import WATCHED, train_watched
from train.phases.test_runner import STEPS, untimed
from train.test_distributed import launched

pytestmark = pytest.mark.slow

STOPS = {"inside a phase": 5, "at a border": 6, "inside a cached phase": 11}
TRAININGS: dict[str, dict[str, Any]] = {
    "eventful": {"schedule": "eventful"},
    "everything": {"schedule": "everything"},
    **{name: {"schedule": "eventful", "stop": stop} for name, stop in STOPS.items()},
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folders of all trainings as two processes held them."""

    def train(root: Path) -> None:
        trainings = [{"folder": str(root / name), **options} for name, options in TRAININGS.items()]
        launched("phases/growth_script.py", json.dumps(trainings))

    return made_once(tmp_path_factory, "growth-distributed", train)


def _read(folder: Path, what: str) -> list[Any]:
    return [json.loads((folder / f"{what}-{rank}.json").read_text()) for rank in (0, 1)]


@pytest.mark.parametrize("name", ["eventful", "everything"])
def test_two_processes_train_as_one_does(name: str, folders: Path, tmp_path: Path) -> None:
    train_watched(tmp_path, **TRAININGS[name])
    alone, both = json.loads((tmp_path / "losses-0.json").read_text()), _read(folders / name, "losses")
    # Each process reports the loss of its half of the batch, scaled so that the mean is that of the whole.
    assert [sum(pair) / 2 for pair in zip(*both, strict=True)] == pytest.approx(alone, rel=1e-3)
    assert len(alone) == STEPS * WATCHED.gradient_accumulation_steps
    one, two = TrainingRecord.read(tmp_path / MODEL), TrainingRecord.read(folders / name / MODEL)
    assert one is not None
    assert two is not None
    assert (two.steps, two.examples, untimed(two).figures) == (one.steps, one.examples, untimed(one).figures)
    ours = load_file(folders / name / MODEL / "model.safetensors")
    for key, weight in load_file(tmp_path / MODEL / "model.safetensors").items():
        torch.testing.assert_close(ours[key], weight, rtol=1e-2, atol=1e-3, msg=key)


def test_on_both_processes_the_same_layers_run_and_the_same_weights_rest(folders: Path, tmp_path: Path) -> None:
    train_watched(tmp_path, **TRAININGS["eventful"])
    for what in ("ran", "rested"):
        alone = json.loads((tmp_path / f"{what}-0.json").read_text())
        assert _read(folders / "eventful", what) == [alone, alone]
    assert all(alone[str(step)] for step in (0, 1, 2, *range(6, 12))), "something rests, or nothing is seen"


@pytest.mark.parametrize("name", STOPS)
def test_resumed_both_go_on_as_they_would_have(name: str, folders: Path) -> None:
    resumed_at = STOPS[name] - STOPS[name] % 2
    whole = _read(folders / "eventful", "losses")
    assert _read(folders / name, "losses") == [
        losses[resumed_at * WATCHED.gradient_accumulation_steps :] for losses in whole
    ]
    one, two = (load_file(folders / each / MODEL / "model.safetensors") for each in ("eventful", name))
    assert all(torch.equal(one[key], two[key]) for key in one)
    assert not (folders / name / "states").exists()
