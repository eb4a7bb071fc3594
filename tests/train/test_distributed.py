"""Two processes over gloo train as one does: the same plans without a word between them, the same losses, one model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from layerwise.plan.samplers import SeededSampler
from layerwise.results.training_record import MODEL, TrainingRecord
from once import made_once
from threads import threaded
from train.distributed_script import DEPTH, SAMPLERS, train_watched

pytestmark = pytest.mark.slow

STEPS = 12
TRAININGS: dict[str, dict[str, Any]] = {
    "shuffle": {"sampler": "shuffle"},
    "predict": {"sampler": "shuffle", "variant": "predict"},
    "position": {"sampler": "shuffle", "variant": "position"},
    "drop": {"sampler": "drop"},
    "preserve": {"sampler": "preserve"},
    "two layers": {"sampler": "two layers"},
    "drop apart": {"sampler": "drop", "ranks": "per-rank"},
}
STOPPED = {"sampler": "shuffle", "stop": 10}
RESUMED_AT = 8


def launched(script: str, argument: str) -> None:
    """Run a script of this folder on two processes, in one start of `torchrun`."""
    environment = threaded(PYTHONPATH=os.pathsep.join(sys.path))
    done = subprocess.run(
        [
            sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone",
            str(Path(__file__).parent / script), argument,
        ],
        env=environment, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folders of all trainings as two processes held them."""

    def train(root: Path) -> None:
        every = {**TRAININGS, "stopped": STOPPED}
        launched("distributed_script.py", json.dumps([{"folder": str(root / n), **o} for n, o in every.items()]))

    return made_once(tmp_path_factory, "distributed", train)


def _read(folder: Path, what: str) -> list[list[Any]]:
    return [json.loads((folder / f"{what}-{rank}.json").read_text()) for rank in (0, 1)]


@pytest.mark.parametrize("name", [name for name in TRAININGS if "apart" not in name])
def test_both_processes_run_the_plans_of_the_draws(name: str, folders: Path) -> None:
    draws = SeededSampler(SAMPLERS[TRAININGS[name]["sampler"]], DEPTH, 1, "training")
    expected = [str(draws.at(step, 0)) for step in range(STEPS)]
    assert _read(folders / name, "plans") == [expected, expected]


def test_processes_that_draw_for_themselves_draw_differently(folders: Path) -> None:
    own = [SeededSampler(SAMPLERS["drop"], DEPTH, 1, f"training/{rank}") for rank in (0, 1)]
    plans = _read(folders / "drop apart", "plans")
    assert plans == [[str(draws.at(step, 0)) for step in range(STEPS)] for draws in own]
    assert plans[0] != plans[1]


@pytest.mark.parametrize("name", [name for name in TRAININGS if "apart" not in name])
def test_losses_and_weights_are_those_of_one_process(name: str, folders: Path, tmp_path: Path) -> None:
    train_watched(tmp_path, **TRAININGS[name])
    alone = json.loads((tmp_path / "losses-0.json").read_text())
    both = _read(folders / name, "losses")
    # Each process reports the loss of its half of the batch, scaled so that the mean is that of the whole.
    assert [sum(pair) / 2 for pair in zip(*both, strict=True)] == pytest.approx(alone, rel=1e-4)
    assert len(alone) == STEPS
    one, two = TrainingRecord.read(tmp_path / MODEL), TrainingRecord.read(folders / name / MODEL)
    assert one is not None
    assert two is not None
    assert (two.steps, two.best_step, two.examples) == (one.steps, one.best_step, one.examples)
    ours = load_file(folders / name / MODEL / "model.safetensors")
    for key, weight in load_file(tmp_path / MODEL / "model.safetensors").items():
        torch.testing.assert_close(ours[key], weight, rtol=1e-2, atol=1e-3, msg=key)


def test_resumed_in_the_middle_of_a_later_epoch_both_go_on_as_they_would_have(folders: Path) -> None:
    for what in ("plans", "losses"):
        whole = _read(folders / "shuffle", what)
        assert _read(folders / "stopped", what) == [values[RESUMED_AT:] for values in whole]
    assert len(_read(folders / "stopped", "losses")[0]) == STEPS - RESUMED_AT
    one, two = (load_file(folders / name / MODEL / "model.safetensors") for name in ("shuffle", "stopped"))
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_a_model_in_shards_is_trained_as_the_whole() -> None:
    """Its losses and gradients under drawn plans are those of the whole model, and LAMB moves it alike.

    A trust ratio of LAMB is that of the whole tensor, not of the part that a process holds.
    """
    launched("sharded_script.py", "shuffle drop lamb")
