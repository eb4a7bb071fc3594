"""Two processes over gloo train as one does: the same plans without a word between them, the same losses, one model."""

from __future__ import annotations

import json
import shutil
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from apart import ranks
from layerwise.plan.samplers import SeededSampler
from layerwise.results.training_record import MODEL, TrainingRecord
from layerwise.train.methods import METHODS
from once import made_once
from train.distributed_script import DEPTH, SAMPLERS, recipe_of, train_all, train_watched
from train.sharded_script import compare_all

pytestmark = pytest.mark.slow

LONG: dict[str, Any] = {"epochs": 4, "evals": 3, "gradient_accumulation_steps": 2}
STEPS = 12
RESUMED_AT = 8
REPRESENTATIVE = (
    "layershuffle", "layershuffle-position", "layershuffle-predict", "layerdrop", "wiring-softmax", *SAMPLERS,
)  # fmt: skip
"""One recipe of every kind: an order, parts of its own, layers left out, a wiring, weights that never learn or rest."""
EVERY = (*METHODS, *SAMPLERS, "retrained-2")
RECIPES: dict[str, dict[str, Any]] = {
    name: {"method": name, **(LONG if name == "layershuffle" else {})} for name in EVERY
}
"""21 examples in batches of 8, so that the last batch of an epoch is never full."""
BY_RECIPE = [pytest.param(name, marks=[] if name in REPRESENTATIVE else [pytest.mark.nightly]) for name in EVERY]

SHARDED: dict[str, dict[str, Any]] = {
    f"{name} in shards": {**RECIPES[name], "sharded": True} for name in ("layershuffle", "wiring-softmax", "two layers")
}
APART: dict[str, Any] = {"method": "layerdrop", "ranks": "per-rank"}
STOPPED: dict[str, dict[str, Any]] = {
    "stopped": {**RECIPES["layershuffle"], "stop": 10},
    "stopped in shards": {**SHARDED["layershuffle in shards"], "stop": 10},
    # Two layers never learn, and have no moments that could be loaded.
    "two layers, stopped, in shards": {**SHARDED["two layers in shards"], "stop": 4},
}
HALF = {**RECIPES["layershuffle"], "stop": 10, "ends": True}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folders of the trainings that are not nightly as two processes held them; `joined` was begun by one."""

    def train(root: Path) -> None:
        train_watched(root / "joined", **HALF)
        every = {name: RECIPES[name] for name in REPRESENTATIVE}
        every |= {**STOPPED, **SHARDED, "apart": APART, "left": HALF, "joined": RECIPES["layershuffle"]}
        # accelerate shards whatever a process trains after it has sharded once.
        every = dict(sorted(every.items(), key=lambda each: "sharded" in each[1]))
        ranks(train_all, {root / name: options for name, options in every.items()})

    return made_once(tmp_path_factory, "distributed", train)


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folders of the recipes that are nightly."""

    def train(root: Path) -> None:
        ranks(train_all, {root / name: RECIPES[name] for name in EVERY if name not in REPRESENTATIVE})

    return made_once(tmp_path_factory, "distributed-others", train)


def folder_of(name: str, request: pytest.FixtureRequest) -> Path:
    nightly = name in EVERY and name not in REPRESENTATIVE
    return Path(request.getfixturevalue("others" if nightly else "folders"), name)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the long training as one process held it."""

    def train(root: Path) -> None:
        train_watched(root / "layershuffle", **RECIPES["layershuffle"])

    return made_once(tmp_path_factory, "alone", train)


def _read(folder: Path, what: str) -> list[list[Any]]:
    return [json.loads((folder / f"{what}-{rank}.json").read_text()) for rank in (0, 1)]


def _losses(folder: Path) -> list[float]:
    """Each process reports the loss of its half of the batch, scaled so that the mean is that of the whole."""
    return [sum(pair) / 2 for pair in zip(*_read(folder, "losses"), strict=True)]


def _own(folder: Path, what: str) -> list[Any]:
    values: list[Any] = json.loads((folder / f"{what}-0.json").read_text())
    return values


def _compare_models(two: Path, one: Path) -> None:
    ours = load_file(two / MODEL / "model.safetensors")
    for key, weight in load_file(one / MODEL / "model.safetensors").items():
        torch.testing.assert_close(ours[key], weight, rtol=1e-2, atol=1e-3, msg=key)


@pytest.mark.parametrize("name", [*BY_RECIPE, *SHARDED])
def test_both_processes_run_the_plans_of_the_draws(name: str, request: pytest.FixtureRequest) -> None:
    options = {key: value for key, value in (RECIPES | SHARDED)[name].items() if key != "sharded"}
    recipe = recipe_of(options.pop("method"), "shared", **options)
    draws, passes = SeededSampler(recipe.sampler, DEPTH, 1, "training"), recipe.settings.gradient_accumulation_steps
    expected = [str(draws.at(step, part)) for step in range(recipe.steps(21)) for part in range(passes)]
    assert _read(folder_of(name, request), "plans") == [expected, expected]


def test_processes_that_draw_for_themselves_draw_differently(folders: Path) -> None:
    sampler = recipe_of("layerdrop", "per-rank").sampler
    own = [SeededSampler(sampler, DEPTH, 1, f"training/{rank}") for rank in (0, 1)]
    plans = _read(folders / "apart", "plans")
    assert plans == [[str(draws.at(step, 0)) for step in range(6)] for draws in own]
    assert plans[0] != plans[1]


@pytest.mark.parametrize("name", BY_RECIPE)
def test_losses_and_weights_are_those_of_one_process(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    folder = folder_of(name, request)
    train_watched(tmp_path, **RECIPES[name])
    assert _losses(folder) == pytest.approx(_own(tmp_path, "losses"), rel=1e-4)
    assert sorted(chain(*_read(folder, "read"))) == sorted(_own(tmp_path, "read"))
    one, two = TrainingRecord.read(tmp_path / MODEL), TrainingRecord.read(folder / MODEL)
    assert one is not None
    assert two is not None
    assert (two.steps, two.best_step, two.examples) == (one.steps, one.best_step, one.examples)
    assert [(entry.step, entry.kind) for entry in two.history] == [(entry.step, entry.kind) for entry in one.history]
    assert [entry.loss for entry in two.history] == pytest.approx([entry.loss for entry in one.history], rel=1e-4)
    _compare_models(folder, tmp_path)


@pytest.mark.parametrize("name", [*SHARDED])
def test_a_model_in_shards_learns_what_the_whole_does(name: str, folders: Path) -> None:
    whole = name.removesuffix(" in shards")
    assert _losses(folders / name) == pytest.approx(_losses(folders / whole), rel=1e-4)
    records = [TrainingRecord.read(folders / each / MODEL) for each in (name, whole)]
    losses = [[entry.loss for entry in record.history] for record in records if record is not None]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    _compare_models(folders / name, folders / whole)


@pytest.mark.parametrize("shards", ["", " in shards"])
def test_resumed_in_the_middle_of_a_later_epoch_both_go_on_as_they_would_have(shards: str, folders: Path) -> None:
    for what in ("plans", "losses"):
        whole = _read(folders / f"layershuffle{shards}", what)
        assert _read(folders / f"stopped{shards}", what) == [values[2 * RESUMED_AT :] for values in whole]
    straight, resumed = (
        TrainingRecord.read(folders / f"{name}{shards}" / MODEL) for name in ("layershuffle", "stopped")
    )
    assert straight is not None
    assert resumed is not None
    assert resumed.history == straight.history
    one, two = (
        load_file(folders / f"{name}{shards}" / MODEL / "model.safetensors") for name in ("layershuffle", "stopped")
    )
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_in_shards_a_layer_that_never_learned_is_no_hindrance_to_a_resume(folders: Path) -> None:
    straight, resumed = folders / "two layers in shards", folders / "two layers, stopped, in shards"
    assert _read(resumed, "losses") == [values[3:] for values in _read(straight, "losses")]


def test_what_two_processes_began_one_ends_as_it_would_have(folders: Path, alone: Path, tmp_path: Path) -> None:
    shutil.copytree(folders / "left", tmp_path / "left")
    assert not (tmp_path / "left" / MODEL).exists()
    train_watched(tmp_path / "left", **RECIPES["layershuffle"])
    straight = alone / "layershuffle"
    assert _own(tmp_path / "left", "plans") == _own(straight, "plans")[2 * RESUMED_AT :]
    assert _own(tmp_path / "left", "read") == _own(straight, "read")[-len(_own(tmp_path / "left", "read")) :]
    assert _own(tmp_path / "left", "losses") == pytest.approx(_own(straight, "losses")[2 * RESUMED_AT :], rel=1e-4)
    _compare_models(tmp_path / "left", straight)


def test_what_one_process_began_two_end_as_it_would_have(folders: Path, alone: Path) -> None:
    straight, joined = alone / "layershuffle", folders / "joined"
    plans = _own(straight, "plans")[2 * RESUMED_AT :]
    assert _read(joined, "plans") == [plans, plans]
    read = [*chain(*_read(joined, "read"))]
    assert sorted(read) == sorted(_own(straight, "read")[-len(read) :])
    assert _losses(joined) == pytest.approx(_own(straight, "losses")[2 * RESUMED_AT :], rel=1e-4)
    _compare_models(joined, straight)


def test_a_model_in_shards_is_trained_as_the_whole() -> None:
    """Its losses and gradients under drawn plans are those of the whole model, and LAMB moves it alike.

    A trust ratio of LAMB is that of the whole tensor, not of the part that a process holds.
    """
    ranks(compare_all)
