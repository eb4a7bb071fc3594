"""Growth training on two processes over gloo: what rests rests on both, and the losses are those of one process."""

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
from train.phases.growth_script import WATCHED, train_all, train_watched
from train.phases.test_runner import STEPS, untimed

pytestmark = pytest.mark.slow

STOPS = {"inside a phase": 5, "at a border": 6, "inside a cached phase": 11}
TRAININGS: dict[str, dict[str, Any]] = {
    "eventful": {"schedule": "eventful"},
    "everything": {"schedule": "everything"},
    **{name: {"schedule": "eventful", "stop": stop} for name, stop in STOPS.items()},
    "left": {"schedule": "eventful", "stop": 11, "ends": True},
    "joined": {"schedule": "eventful"},
    "whole": {"schedule": "uncached"},
    "in shards": {"schedule": "uncached", "sharded": True},
    "inside a phase, in shards": {"schedule": "uncached", "stop": 5, "sharded": True},
    "at a border, in shards": {"schedule": "uncached", "stop": 6, "sharded": True},
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folders of all trainings as two processes held them."""

    def train(root: Path) -> None:
        train_watched(root / "joined", **TRAININGS["left"])
        ranks(train_all, {root / name: options for name, options in TRAININGS.items()})

    return made_once(tmp_path_factory, "growth-distributed", train)


def _read(folder: Path, what: str) -> list[Any]:
    return [json.loads((folder / f"{what}-{rank}.json").read_text()) for rank in (0, 1)]


def _means(both: list[list[float]]) -> list[float]:
    """Each process reports the loss of its half of the batch, scaled so that the mean is that of the whole."""
    return [sum(pair) / 2 for pair in zip(*both, strict=True)]


@pytest.mark.parametrize("name", ["eventful", "everything"])
def test_two_processes_train_as_one_does(name: str, folders: Path, tmp_path: Path) -> None:
    train_watched(tmp_path, **TRAININGS[name])
    alone, both = json.loads((tmp_path / "losses-0.json").read_text()), _read(folders / name, "losses")
    assert _means(both) == pytest.approx(alone, rel=1e-3)
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


def test_what_two_processes_began_one_ends_and_the_other_way_round(folders: Path, tmp_path: Path) -> None:
    whole = _means(_read(folders / "eventful", "losses"))[10 * WATCHED.gradient_accumulation_steps :]
    assert _means(_read(folders / "joined", "losses")) == pytest.approx(whole, rel=1e-3)
    shutil.copytree(folders / "left", tmp_path / "left")
    train_watched(tmp_path / "left", **TRAININGS["eventful"])
    assert json.loads((tmp_path / "left" / "losses-0.json").read_text()) == pytest.approx(whole, rel=1e-3)


def test_phases_of_a_model_in_shards_are_those_of_the_whole(folders: Path) -> None:
    one, two = (_read(folders / name, "losses") for name in ("whole", "in shards"))
    assert _means(two) == pytest.approx(_means(one), rel=1e-4)
    assert _read(folders / "in shards", "ran") == _read(folders / "whole", "ran")
    rested = _read(folders / "whole", "rested")[0]
    for part in _read(folders / "in shards", "rested"):
        assert all(set(names) <= set(part[step]) for step, names in rested.items())
    ours, theirs = (load_file(folders / name / MODEL / "model.safetensors") for name in ("in shards", "whole"))
    for key, weight in theirs.items():
        torch.testing.assert_close(ours[key], weight, rtol=1e-2, atol=1e-3, msg=key)


@pytest.mark.parametrize("stop", ["inside a phase", "at a border"])
def test_resumed_in_shards_both_go_on_as_they_would_have(stop: str, folders: Path) -> None:
    first = (STOPS[stop] - STOPS[stop] % 2) * WATCHED.gradient_accumulation_steps
    whole = _read(folders / "in shards", "losses")
    assert _read(folders / f"{stop}, in shards", "losses") == [losses[first:] for losses in whole]
