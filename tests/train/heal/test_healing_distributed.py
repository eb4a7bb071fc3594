"""Two processes over gloo heal as one does, whatever learns, and either goes on where the other stopped."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from apart import ranks
from layerwise.results.training_record import MODEL, TrainingRecord
from layerwise.train.heal.options import Method
from once import made_once
from train.heal.healing_script import heal, heal_all

pytestmark = pytest.mark.slow

METHODS: tuple[Method, ...] = ("lora", "full", "tail")
STOP = 6
"""Checkpoints are those of the steps 4, 8 and 12."""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folders of all healings by two processes; those `joined` were begun by one."""

    def make(root: Path) -> None:
        for method in METHODS:
            heal(root / f"joined-{method}", method, STOP)
        ranks(
            heal_all,
            {
                root / f"{name}-{method}": {"method": method, "stop": stop}
                for method in METHODS
                for name, stop in (("whole", None), ("left", STOP), ("joined", None))
            },
        )

    return made_once(tmp_path_factory, "healings", make)


def _compare(folder: Path, alone: Path) -> None:
    ours, theirs = TrainingRecord.read(folder / MODEL), TrainingRecord.read(alone / MODEL)
    assert ours is not None
    assert theirs is not None
    losses = [[entry.loss for entry in each.history if entry.kind == "validation"] for each in (ours, theirs)]
    assert len(losses[1]) == 3
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    (one,), (two,) = ((each / MODEL).glob("*.safetensors") for each in (alone, folder))
    weights = load_file(two)
    for name, weight in load_file(one).items():
        torch.testing.assert_close(weights[name], weight, rtol=1e-2, atol=1e-3, msg=name)


@pytest.mark.parametrize("method", METHODS)
def test_two_processes_heal_as_one(method: Method, folders: Path, tmp_path: Path) -> None:
    heal(tmp_path / "alone", method)
    for name in ("whole", "joined"):
        _compare(folders / f"{name}-{method}", tmp_path / "alone")
    assert (folders / f"left-{method}" / "checkpoint-4").is_dir()
    assert not (folders / f"left-{method}" / MODEL).exists()
    shutil.copytree(folders / f"left-{method}", tmp_path / "left")
    heal(tmp_path / "left", method)
    _compare(tmp_path / "left", tmp_path / "alone")
