"""Trainings in a folder: stopped, killed and resumed, in one process or two."""

import json
import random
import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch

from apart import Watch, apart, ranks
from layerwise.errors import TrainError
from layerwise.plan.samplers import SeededSampler
from layerwise.results.training_record import FILE, MODEL, TrainingRecord
from layerwise.train.checkpoint_dir import CONFIG, last_checkpoint, run_training, steps_of
from once import made_once
from tier import first_fast
from train.kinds import (
    BY_METHOD,
    CPU,
    DEPTH,
    HEALED,
    KINDS,
    REPRESENTATIVE,
    Noted,
    StoppedError,
    carry_out,
    carry_out_all,
    interval,
    learned,
    method,
    noted_in,
    watched,
)
from train.sharded_script import compare_all
from train.tiny_models import same_weights

ONE = (
    *("growth", "with dropout", "heal full", "pretraining with dropout", "heal lora", "heal tail"),
    *("layershuffle-position", "layershuffle-predict", "wiring-softmax", "layerdrop"),
)
"""Kinds trained in one process, the first two in the fast tests."""

Straight = Callable[[str], tuple[Path, Noted, TrainingRecord]]


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Straight:
    @cache
    def made(kind: str) -> tuple[Path, Noted, TrainingRecord]:
        folder = tmp_path_factory.mktemp("straight")
        return folder, carry_out(folder, kind), record_in(folder)

    return made


def record_in(folder: Path) -> TrainingRecord:
    record = TrainingRecord.read(folder / MODEL)
    assert record is not None
    return record


def untimed(record: TrainingRecord) -> tuple[TrainingRecord, set[str]]:
    exact = {"flops", "parameters", "tokens", "learning_weights", "gradient_norm", "gradient_norm_most"}
    kept = {name: value for name, value in record.figures.items() if name in exact}
    return replace(record, seconds=0, figures=kept), set(record.figures)


def behind(noted: Noted, step: int, steps: int) -> tuple[list[float], list[str], dict[str, list[str]]]:
    passes = len(noted.losses) * step // steps
    plans = noted.plans[len(noted.plans) * step // steps :]
    return noted.losses[passes:], plans, {name: each for name, each in noted.rests.items() if int(name) >= step}


STOPS = [
    *(
        pytest.param(
            kind, {"growth": 10, "with dropout": 3}.get(kind, 5), marks=[] if kind in ONE[:2] else pytest.mark.slow
        )
        for kind in ONE
    ),
    pytest.param("growth", 6, marks=pytest.mark.slow),
    *(pytest.param("growth", stop, marks=pytest.mark.nightly) for stop in (3, 5, 7)),
    pytest.param("with dropout", 5, marks=pytest.mark.nightly),
]
"""Growth stops inside each phase and at the boundary; dropout in the first epoch."""


@pytest.mark.parametrize(("kind", "stop"), STOPS)
def test_resuming_a_stopped_training_matches_an_uninterrupted_one(
    kind: str, stop: int, straight: Straight, tmp_path: Path
) -> None:
    folder, whole, record = straight(kind)
    first, second = Noted(), Noted()
    with watched(first, stop), pytest.raises(StoppedError):
        KINDS[kind](tmp_path, arguments=CPU)
    begun = steps_of(str(last_checkpoint(tmp_path)))
    assert begun == stop - stop % interval(kind)
    (weights,) = (folder / MODEL).glob("*.safetensors")
    (tmp_path / MODEL).mkdir()
    (tmp_path / MODEL / weights.name).write_bytes(b"half of a model")
    with watched(second):
        resumed = KINDS[kind](tmp_path, arguments=CPU)
    assert first.losses == whole.losses[: len(whole.losses) * stop // record.steps]
    assert behind(second, 0, record.steps - begun) == behind(whole, begun, record.steps)
    assert second.read == whole.read[len(whole.read) - len(second.read) :]
    assert untimed(resumed) == untimed(record)
    assert same_weights(learned(tmp_path), learned(folder))
    assert TrainingRecord.read(tmp_path / MODEL) == resumed
    assert sorted(path.name for path in tmp_path.iterdir()) == [MODEL, CONFIG]


@pytest.mark.parametrize("kind", first_fast(["growth", "pretraining"]))
def test_an_incomplete_checkpoint_is_ignored(kind: str, straight: Straight, tmp_path: Path) -> None:
    folder, whole, record = straight(kind)
    noted, last = Noted(), 8 if kind == "growth" else 4
    with watched(Noted(), last + 1), pytest.raises(StoppedError):
        KINDS[kind](tmp_path, arguments=CPU)
    (tmp_path / f"checkpoint-{last}" / "trainer_state.json").unlink()
    begun = steps_of(str(last_checkpoint(tmp_path)))
    assert begun == last - 2
    with watched(noted):
        KINDS[kind](tmp_path, arguments=CPU)
    assert behind(noted, 0, record.steps - begun) == behind(whole, begun, record.steps)
    assert same_weights(learned(tmp_path), learned(folder))


@pytest.mark.parametrize("kind", first_fast(ONE, slow=3))
def test_a_finished_training_is_not_repeated(kind: str, straight: Straight) -> None:
    folder, _, record = straight(kind)
    noted = Noted()
    with watched(noted):
        assert KINDS[kind](folder, arguments=CPU) == record
        with pytest.raises(TrainError, match="holds a different training run"):
            KINDS["sequential"](folder, arguments=CPU)
    assert noted.losses == []


ASKED: dict[str, Any] = {
    "base": "b",
    "data": "d",
    "recipe": {"settings": {"learning_rate": 0.01, "epochs": 2}},
    "seed": 1,
}
ANOTHER: dict[str, tuple[Any, str]] = {
    "base": ("another", "it has a different base model"),
    "data": ("another", "it has different data"),
    "recipe": ({"settings": {"learning_rate": 0.02, "epochs": 2}}, "its learning_rate is 0.01, got 0.02"),
    "seed": (2, "its seed is 1, got 2"),
}


@pytest.mark.parametrize("name", ANOTHER)
@pytest.mark.parametrize("finished", [True, False], ids=["finished", "begun"])
def test_a_folder_with_a_different_training_is_rejected(finished: bool, name: str, tmp_path: Path) -> None:
    if finished:
        (tmp_path / MODEL).mkdir()
        TrainingRecord(
            **ASKED, variant="a", data_name="n", steps=1, epochs=1, examples=1, seconds=1, best_step=1
        ).write(tmp_path / MODEL)
    else:
        (tmp_path / CONFIG).write_text(json.dumps(ASKED))

    def never() -> Any:
        raise AssertionError("a rejected training must not open a model")

    value, words = ANOTHER[name]
    with pytest.raises(TrainError, match=f"holds a different training run: {words}. Pass another --run"):
        run_training(never, {**ASKED, name: value}, tmp_path, variant="a", data_name="n")


def train_apart(folder: Path, kind: str) -> None:
    KINDS[kind](folder, arguments=CPU)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "write"), [("layershuffle", "checkpoint-6"), ("growth", "checkpoint-12"), ("pretraining", "checkpoint-4")]
)
def test_resuming_a_killed_training_gives_the_same_weights(
    kind: str, write: str, straight: Straight, tmp_path: Path
) -> None:
    folder, _, record = straight(kind)
    killed = tmp_path / "killed"
    ended = apart(train_apart, killed, kind, watch=Watch(killed, 0, of=write))
    assert ended.code == -signal.SIGKILL, ended.err
    assert not (killed / MODEL / FILE).exists()
    assert untimed(KINDS[kind](killed, arguments=CPU)) == untimed(record)
    assert same_weights(learned(killed), learned(folder))


@pytest.mark.parametrize(
    ("kind", "kills"),
    [
        pytest.param("heal lora", 2, marks=pytest.mark.slow),
        *(pytest.param(kind, 20, marks=pytest.mark.nightly) for kind in ("heal full", "heal tail", "growth")),
    ],
)
def test_a_training_killed_at_random_writes_gives_the_same_weights(kind: str, kills: int, tmp_path: Path) -> None:
    whole, killed, hits = tmp_path / "whole", tmp_path / "killed", 0
    writes = apart(train_apart, whole, kind, watch=Watch(whole)).writes
    assert len(writes) > 20
    chance = random.Random(0)
    while hits < kills:
        ended = apart(train_apart, killed, kind, watch=Watch(killed, chance.randrange(len(writes))))
        assert ended.code in (0, -signal.SIGKILL), ended.err
        hits += ended.code != 0
        if (killed / MODEL / FILE).is_file():
            assert same_weights(learned(killed), learned(whole))
            shutil.rmtree(killed)
    KINDS[kind](killed, arguments=CPU)
    assert same_weights(learned(killed), learned(whole))


RECOMPUTED = [
    ("layershuffle-position", False),
    ("layershuffle-predict", True),
    ("wiring-softmax", False),
    ("growth", False),
    ("layershuffle-position", True),
    ("layershuffle-predict", False),
    ("wiring-softmax", True),
]


@pytest.mark.parametrize("case", first_fast(RECOMPUTED, slow=4), ids=str)
def test_gradient_checkpointing_changes_no_weights(case: tuple[str, bool], straight: Straight, tmp_path: Path) -> None:
    kind, reentrant = case
    folder, whole, _ = straight(kind)
    noted, recomputed = Noted(), {"gradient_checkpointing_kwargs": {"use_reentrant": reentrant}}
    with watched(noted):
        KINDS[kind](tmp_path, arguments={**CPU, "gradient_checkpointing": True, **recomputed})
    assert noted.losses == pytest.approx(whole.losses, rel=1e-5)
    ours = learned(tmp_path)
    for name, weight in learned(folder).items():
        torch.testing.assert_close(ours[name], weight, rtol=1e-4, atol=1e-6, msg=name)


HEALS = tuple(f"heal {how}" for how in HEALED)
FAMILIES: dict[str, tuple[str, ...]] = {
    "methods": (*REPRESENTATIVE, "apart"),
    "nightly": tuple(name for name in BY_METHOD if name not in REPRESENTATIVE),
    "growth": ("growth",),
    "heals": HEALS,
    "pretraining": ("pretraining",),
}
SHARDED = ("wiring-softmax", "two layers", "growth", "pretraining")
STOPPED = {
    "layershuffle": 5,
    "two layers, in shards": 4,
    "growth": 11,
    "growth, in shards": 5,
    "pretraining": 3,
    "pretraining, in shards": 5,
}
"""Two layers are never trained and have no moments."""
SHARED_OUT = {"layershuffle": 3, "growth": 11, "pretraining": 3, "heal full": 3}
"""Started in one process and finished in two, and vice versa."""


def trainings(family: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for kind in FAMILIES[family]:
        found[kind] = {"kind": kind}
        if kind in SHARED_OUT:
            found[f"{kind}, left"] = {"kind": kind, "stop": SHARED_OUT[kind], "ends": True}
            found[f"{kind}, joined"] = {"kind": kind}
        if kind in SHARDED:
            found[f"{kind}, in shards"] = {"kind": kind, "sharded": True}
    for name in STOPPED.keys() & found.keys():
        found[f"{name}, stopped"] = {**found[name], "stop": STOPPED[name]}
    return dict(sorted(found.items(), key=lambda each: "sharded" in each[1]))


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    def begin(root: Path, family: str) -> None:
        every = trainings(family)
        for name in every:
            if name.endswith(", joined"):
                carry_out(root / name, **every[name.replace("joined", "left")])
        ranks(carry_out_all, {root / name: options for name, options in every.items()})

    @cache
    def root_of(family: str) -> Path:
        return made_once(tmp_path_factory, f"two-{family}", lambda root: begin(root, family))

    return lambda name: root_of(next(each for each in FAMILIES if name.partition(",")[0] in FAMILIES[each])) / name


def means(folder: Path) -> list[float]:
    return [sum(pair) / 2 for pair in zip(*(noted_in(folder, rank).losses for rank in (0, 1)), strict=True)]


def compare(folder: Path, other: Path) -> None:
    one, two = record_in(other), record_in(folder)
    exact = [(each.steps, each.best_step, each.examples, each.figures.get("tokens")) for each in (one, two)]
    assert exact[0] == exact[1]
    assert two.figures.get("flops") == one.figures.get("flops")
    assert [(entry.step, entry.kind) for entry in two.history] == [(entry.step, entry.kind) for entry in one.history]
    assert [entry.loss for entry in two.history] == pytest.approx([entry.loss for entry in one.history], rel=1e-3)
    ours = learned(folder)
    for key, weight in learned(other).items():
        torch.testing.assert_close(ours[key], weight, rtol=1e-2, atol=1e-3, msg=key)


ALIKE = [
    *(pytest.param(kind, marks=pytest.mark.slow) for kind in (*REPRESENTATIVE, "growth", *HEALS, "pretraining")),
    *(pytest.param(kind, marks=pytest.mark.nightly) for kind in FAMILIES["nightly"]),
]


@pytest.mark.parametrize("kind", ALIKE)
def test_two_processes_match_one(kind: str, two: Callable[[str], Path], straight: Straight) -> None:
    folder, alone, _ = straight(kind)
    both = [noted_in(two(kind), rank) for rank in (0, 1)]
    assert means(two(kind)) == pytest.approx(alone.losses, rel=1e-3)
    assert sorted(chain(*(each.read for each in both))) == sorted(alone.read)
    if kind != "pretraining":  # whose noted shapes are those of half a batch
        assert [each.plans for each in both] == [alone.plans, alone.plans]
    assert [each.rests for each in both] == [alone.rests] * 2
    compare(two(kind), folder)


@pytest.mark.slow
def test_per_rank_sampling_differs_between_processes(two: Callable[[str], Path]) -> None:
    sampler = method("layerdrop", "per-rank").sampler
    own = [SeededSampler(sampler, DEPTH, 1, f"training/{rank}") for rank in (0, 1)]
    plans = [noted_in(two("apart"), rank).plans for rank in (0, 1)]
    assert plans == [[str(draws.at(step, 0)) for step in range(6)] for draws in own]
    assert plans[0] != plans[1]


@pytest.mark.slow
@pytest.mark.parametrize("kind", SHARDED)
def test_sharded_training_matches_unsharded_training(kind: str, two: Callable[[str], Path]) -> None:
    whole, parts = two(kind), two(f"{kind}, in shards")
    assert means(parts) == pytest.approx(means(whole), rel=1e-3)
    for rank in (0, 1):
        one, part = noted_in(whole, rank), noted_in(parts, rank)
        assert part.plans == one.plans
        assert all(set(names) <= set(part.rests[step]) for step, names in one.rests.items())
    compare(parts, whole)


@pytest.mark.slow
@pytest.mark.parametrize("name", STOPPED)
def test_resuming_two_processes_matches_an_uninterrupted_training(name: str, two: Callable[[str], Path]) -> None:
    whole, stopped, stop = two(name), two(f"{name}, stopped"), STOPPED[name]
    begun, steps = stop - stop % interval(name.partition(",")[0]), record_in(whole).steps
    for rank in (0, 1):
        assert behind(noted_in(stopped, rank), 0, steps - begun) == behind(noted_in(whole, rank), begun, steps)
    assert record_in(stopped).history == record_in(whole).history
    assert same_weights(learned(stopped), learned(whole))
    assert not (stopped / "states").exists()


@pytest.mark.slow
@pytest.mark.parametrize("kind", SHARED_OUT)
def test_the_number_of_processes_may_change_on_resuming(kind: str, two: Callable[[str], Path], tmp_path: Path) -> None:
    whole, steps = two(kind), record_in(two(kind)).steps
    begun = SHARED_OUT[kind] - SHARED_OUT[kind] % interval(kind)
    expected = means(whole)[len(means(whole)) * begun // steps :]
    assert means(two(f"{kind}, joined")) == pytest.approx(expected, rel=1e-3)
    compare(two(f"{kind}, joined"), whole)
    shutil.copytree(two(f"{kind}, left"), tmp_path / "left")
    assert not (tmp_path / "left" / MODEL).exists()
    alone = carry_out(tmp_path / "left", kind)
    assert alone.losses == pytest.approx(expected, rel=1e-3)
    if kind != "pretraining":
        assert alone.plans == behind(noted_in(whole), begun, steps)[1]
    compare(tmp_path / "left", whole)


@pytest.mark.slow
def test_losses_gradients_and_lamb_steps_match_under_sharding() -> None:
    ranks(compare_all)
