"""States of a frozen prefix: read in place of computing them, whole or not at all, and refused where they would lie."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from layerwise.data.splits import Splits
from layerwise.errors import PlanError, TrainError
from layerwise.plan import Plan
from layerwise.plan.schedule import GrowthSchedule, Phase
from layerwise.stack import load
from layerwise.train.phases import prefix_cache
from layerwise.train.phases.prefix_cache import Extent, Numbered, NumberedBatches, PrefixCache, extent_of
from layerwise.train.recipe import Settings
from layerwise.train.training import STATES, train
from models.published import random_model
from train.phases.test_runner import DEPTH, QUIET, SETTINGS, Seen, base, recipe_of, run
from train.tiny_models import tiny_digits, tiny_llama, tiny_text, tiny_vit

ASKED = {"base": "b", "data": "d", "recipe": {"arm": "a"}, "seed": 1, "schedule": {"name": "s"}}
EXTENT = Extent(rows=5, positions=4, width=3)


def schedule(cached: bool, head: bool = True) -> GrowthSchedule:
    """The last layer learns, for four passes over the examples."""
    top = Phase("top", 1.0, (2,), embedding=False, head=head, cached=cached)
    return GrowthSchedule("top", DEPTH, (top,))


def opened(folder: Path, weights: str = "w", phase: str = "p", step: int = 9) -> PrefixCache:
    cache = PrefixCache(folder, ASKED, EXTENT)
    cache.open(phase, weights, step)
    return cache


def states(*numbers: int) -> Tensor:
    return torch.stack([torch.full((4, 3), float(number + 1)) for number in numbers])


# -- the file ---------------------------------------------------------------------------------------------------------


def rows_of(cache: PrefixCache, *numbers: int) -> list[list[float]] | None:
    """The first number of every state that is kept of these examples."""
    rows = cache.read(numbers)
    return None if rows is None else rows[:, :, 0].tolist()


def test_rows_are_read_by_number_whole_without_padding_and_as_they_were_first_kept(tmp_path: Path) -> None:
    cache = opened(tmp_path)
    assert rows_of(cache, 1) is None
    cache.write([3, 1], states(3, 1), [4, 2], step=0)
    cache.write([3, 0], states(7, 0), [4, 4], step=0)
    assert rows_of(cache, 1, 3, 0) == [[2, 2, 0, 0], [4] * 4, [1] * 4]
    assert rows_of(cache, 1, 2) is None


@pytest.mark.parametrize("torn", ["states", "sums"])
def test_a_torn_row_is_computed_again(torn: str, tmp_path: Path) -> None:
    cache = opened(tmp_path)
    cache.write([0, 1], states(0, 1), [4, 4], step=0)
    path = tmp_path / torn
    content = bytearray(path.read_bytes())
    content[9 if torn == "sums" else 50] ^= 1  # of row 1
    path.write_bytes(content)
    again = opened(tmp_path)
    assert (rows_of(again, 0), rows_of(again, 1)) == ([[1] * 4], None)
    again.write([1], states(1), [4], step=0)
    assert rows_of(again, 1) == [[2] * 4]


def test_states_of_other_weights_of_another_phase_or_behind_the_checkpoint_are_not_read(tmp_path: Path) -> None:
    for change in ({"weights": "others"}, {"phase": "next"}):
        opened(tmp_path).write([0], states(0), [4], step=0)
        assert rows_of(opened(tmp_path), 0) is not None
        assert rows_of(opened(tmp_path, **change), 0) is None
    cache = opened(tmp_path)
    for number, step in enumerate((3, 4, 5)):
        cache.write([number], states(number), [4], step)
    again = opened(tmp_path, step=4)
    assert [rows_of(again, number) is not None for number in range(3)] == [True, False, False]


def test_what_is_closed_is_gone_and_nothing_else(tmp_path: Path) -> None:
    for folder in (tmp_path / "own", tmp_path / "shared"):
        cache = opened(folder)
        if folder.name == "shared":
            (folder / "mine.txt").write_text("kept")
        cache.close()
        cache.close()
    assert not (tmp_path / "own").exists()
    assert [path.name for path in (tmp_path / "shared").iterdir()] == ["mine.txt"]


def test_the_files_have_their_room_from_the_start(tmp_path: Path) -> None:
    opened(tmp_path)
    files = [tmp_path / name for name in ("states", "sums")]
    assert sum(path.stat().st_size for path in files) == EXTENT.bytes == 5 * (4 * 3 * 4 + 8)
    assert all(path.stat().st_blocks * 512 >= path.stat().st_size for path in files), "not a file of holes"


@pytest.mark.parametrize("name", ASKED)
def test_a_folder_with_states_of_another_training_is_refused(name: str, tmp_path: Path) -> None:
    opened(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(TrainError, match=f"keeps states of another training: its {name} differs"):
        PrefixCache(tmp_path, {**ASKED, name: "another"}, EXTENT)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    PrefixCache(tmp_path, ASKED, EXTENT)


@pytest.mark.parametrize("inside", ["", "not/yet/there"])
def test_a_folder_that_is_too_small_is_refused(inside: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Path] = []

    def usage(path: Path) -> Any:
        asked.append(path)
        return shutil._ntuple_diskusage(1000, 721, 279)  # type: ignore[attr-defined]

    monkeypatch.setattr(shutil, "disk_usage", usage)
    with pytest.raises(TrainError, match=r"take 280 bytes, and .* has 279 free"):
        PrefixCache(tmp_path / inside, ASKED, EXTENT)
    assert asked == [tmp_path]
    assert not any(tmp_path.iterdir())


def test_room_that_the_states_themselves_take_is_theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened(tmp_path)
    before = {path.name: path.stat().st_ino for path in tmp_path.iterdir()}
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(1000, 1000, 0))  # type: ignore[attr-defined]
    PrefixCache(tmp_path, ASKED, EXTENT)
    assert {path.name: path.stat().st_ino for path in tmp_path.iterdir()} == before


def test_examples_tell_their_numbers() -> None:
    numbered = Numbered(tiny_text().train)
    assert [int(numbered[number]["example"]) for number in (4, 0)] == [4, 0]
    assert len(numbered) == 24
    splits = tiny_text()
    batch = NumberedBatches(splits.collate)([numbered[3], numbered[1]])
    assert batch["example"].tolist() == [3, 1]
    assert {key: batch[key].tolist() for key in batch if key != "example"} == {
        key: value.tolist() for key, value in splits.collate([splits.train[3], splits.train[1]]).items()
    }
    assert "example" not in NumberedBatches(splits.collate)([splits.validation[0]])


# -- in a training ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "splits"),
    [(tiny_llama, tiny_text()), (tiny_llama, tiny_text(shortest=2)), (tiny_vit, tiny_digits())],
    ids=["llama", "llama padded", "vit"],
)
def test_a_training_from_kept_states_is_that_from_computed_ones(make: Any, splits: Splits, tmp_path: Path) -> None:
    computed, kept = Seen(), Seen()
    run(schedule(cached=False), tmp_path / "computed", computed, make=make, splits=splits)
    run(schedule(cached=True), tmp_path / "kept", kept, make=make, splits=splits)
    assert kept.losses == pytest.approx(computed.losses, rel=1e-5)
    assert {step for step, ran in kept.ran.items() if ran == [0, 1, 2]} == {0, 1, 2}, "the first pass over the examples"
    assert all(kept.ran[step] == [2] for step in range(3, 12))
    assert not (tmp_path / "kept" / STATES).exists()


def test_what_is_left_of_the_cost_is_counted(tmp_path: Path) -> None:
    record = run(schedule(cached=True), tmp_path)
    tokens, layer, head = 8 * 6, 3.0, 1.0
    above = 3 * layer + 3 * head
    assert record.figures["flops"] == tokens * (12 * above + 3 * 2 * layer)


def test_only_the_head_learning_leaves_the_last_layer_to_run(tmp_path: Path) -> None:
    seen = Seen()
    run(GrowthSchedule("head", DEPTH, (Phase("head", 1.0, (), embedding=False, cached=True),)), tmp_path, seen)
    assert seen.ran[0] == [0, 1, 2]
    assert seen.ran[11] == [2]


def test_two_cached_phases_keep_one_after_the_other(tmp_path: Path) -> None:
    def phases(cached: bool) -> GrowthSchedule:
        first = Phase("first", 0.5, (1, 2), embedding=False, cached=cached)
        return GrowthSchedule("two", DEPTH, (first, Phase("second", 0.5, (2,), embedding=False, cached=cached)))

    computed, kept = Seen(), Seen()
    run(phases(False), tmp_path / "computed", computed)
    run(phases(True), tmp_path / "kept", kept)
    assert kept.losses == pytest.approx(computed.losses, rel=1e-5)
    assert [kept.ran[step] for step in (5, 6, 11)] == [[1, 2], [0, 1, 2], [2]]


def test_states_are_kept_where_they_are_said_to_be(tmp_path: Path) -> None:
    path = tmp_path / "elsewhere"
    found: list[str] = []

    def told(step: int, steps: int, loss: float | None) -> None:
        found.append(json.loads((path / "about.json").read_text())["phase"])

    chosen = recipe_of(schedule(cached=True))
    train(base(), tiny_text(), chosen, 1, tmp_path / "run", arguments=QUIET, states=path, progress=told)
    assert found == ["top"] * 12
    assert not path.exists()


def refused(
    tmp_path: Path, make: Any = tiny_llama, settings: Settings = SETTINGS, splits: Any = None, head: bool = True
) -> str:
    """What a cached training is refused with; nothing was trained, and the folder is as it was."""
    seen = Seen()
    with pytest.raises((TrainError, PlanError)) as caught:
        run(schedule(True, head), tmp_path / "run", seen, make=make, settings=settings, splits=splits)
    assert not seen.losses
    assert not (tmp_path / "run" / "training_config.json").exists()
    return str(caught.value)


def vit_with_dropout() -> PreTrainedModel:
    return tiny_vit(dropout=0.1)


def llama_with_attention_dropout() -> PreTrainedModel:
    model = tiny_llama()
    for layer in model.model.layers:
        layer.self_attn.attention_dropout = 0.2
    return model


@pytest.mark.parametrize("make", [vit_with_dropout, llama_with_attention_dropout])
def test_dropout_in_the_prefix_is_refused(make: Any, tmp_path: Path) -> None:
    splits = tiny_digits() if make is vit_with_dropout else None
    message = refused(tmp_path, make, splits=splits)
    assert "the layers before layer 2 of" in message
    assert "(dropout), so that they cannot be kept" in message


def test_dropout_behind_the_prefix_is_not(tmp_path: Path) -> None:
    def make() -> PreTrainedModel:
        model = tiny_llama()
        model.model.layers[2].self_attn.attention_dropout = 0.2
        return model

    seen = Seen()
    run(schedule(cached=True), tmp_path, seen, make=make)
    assert seen.ran[11] == [2]


def test_asking_how_much_is_kept_leaves_chance_and_model_as_they_were() -> None:
    stack, splits = load(tiny_llama()), tiny_text()
    before = torch.get_rng_state()
    found = extent_of(stack, Plan.identity(DEPTH), 2, splits.collate([splits.train[0]]), rows=24)
    assert found == Extent(24, 6, 16)
    assert torch.equal(torch.get_rng_state(), before)
    assert not stack.model.training
    assert not stack.block(2)._forward_pre_hooks


def test_augmentation_is_refused(tmp_path: Path) -> None:
    settings = replace(SETTINGS, augmentation="crop")
    message = refused(tmp_path, tiny_vit, settings, tiny_digits("crop"))
    assert "phase top: cached needs examples that stay the same, and augmentation is crop" in message


def test_layers_that_read_earlier_states_are_refused(tmp_path: Path) -> None:
    assert "read more than the state before them" in refused(tmp_path, lambda: random_model("elc"), head=False)


def test_too_small_a_disk_and_states_of_another_training_are_refused_before_anything_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(prefix_cache.shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(9, 9, 9))  # type: ignore[attr-defined]
        message = refused(tmp_path)
    assert f"take {24 * (6 * 16 * 4 + 8):,} bytes, and {tmp_path / 'run' / STATES} has 9 free" in message
    path = tmp_path / "run" / STATES
    path.mkdir(parents=True)
    (path / "about.json").write_text(json.dumps({"base": "another"}))
    assert f"{path} keeps states of another training: its base differs" in refused(tmp_path)
