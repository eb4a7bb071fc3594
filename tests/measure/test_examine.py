"""An examination: every part is carried out or says why not, nothing is computed twice, the seed fixes every row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

from conftest import tiny_llama
from layerwise.errors import MeasureError
from layerwise.measure import examine as module
from layerwise.measure.examination import NEEDS, PARTS, Examination
from layerwise.measure.examine import TIMES, Watcher, examine, manifest_of
from layerwise.measure.finetuning import RecoveryRecipe
from layerwise.measure.reading import Reading
from layerwise.results import Run, Score
from layerwise.stack import Stack, load
from measure.planted_models import own_text, planted

DEPTH = 6
MEASURES = {
    "proxies", "structure", "deltas", "predictability", "ablation", "verdict", "racing", "effect", "manipulation",
    "recovery", "recovery_run", "agreement", "pruning", "examination", "contrast",
}  # fmt: skip
QUICK = ("proxies", "ablation", "racing", "agreement", "pruning")


@pytest.fixture(scope="module", autouse=True)
def quickly() -> Iterator[None]:
    """The two longest parts with little to do; what they measure is tested where they are."""
    recipe = RecoveryRecipe(steps=2, every=1, batch_tokens=64, evaluation_tokens=64)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, "recovery", partial(module.recovery, recipe=recipe, treatments=("noise_50/layer",)))
        patched.setattr(module, "manipulation", partial(module.manipulation, sizes=(0.1,), alphas=(0.0, 0.9)))
        yield


@pytest.fixture(scope="module")
def stack() -> Stack:
    return load(planted(depth=DEPTH))


@pytest.fixture(scope="module")
def reading(stack: Stack) -> Reading:
    return own_text(stack, windows=24, length=12)


def carried_out(
    folder: Path, stack: Stack, reading: Reading, asked: Examination, watcher: Watcher | None = None
) -> tuple[list[Score], dict[str, list[str]]]:
    """The scores and the notes of an examination in `folder`."""
    with Run.resume_or_create(folder, manifest_of(stack, reading, asked)) as run:
        examine(stack, reading, asked, run, watcher)
        notes: dict[str, list[str]] = {}
        for note in run.store.notes():
            notes.setdefault(note.measure, []).append(note.text)
        return [score for score in run.store.scores() if score.measure != TIMES], notes


@pytest.fixture(scope="module")
def whole(stack: Stack, reading: Reading, tmp_path_factory: pytest.TempPathFactory) -> list[Score]:
    """Everything, asked of a tiny model once."""
    return carried_out(tmp_path_factory.mktemp("whole") / "run", stack, reading, Examination())[0]


def test_every_part_has_its_rows(whole: list[Score]) -> None:
    assert {score.measure for score in whole} == MEASURES


def test_every_part_has_a_null_in_its_rows(whole: list[Score]) -> None:
    with_nulls = {score.measure for score in whole if "@" in score.metric}
    without = {"verdict", "racing", "effect", "recovery_run", "examination", "pruning", "agreement", "contrast"}
    assert with_nulls >= MEASURES - without
    assert any(score.metric == "null_band" for score in whole if score.measure == "effect")
    assert any(score.subject == "random" for score in whole if score.measure == "pruning")
    assert any("random_score" in score.subject for score in whole if score.measure == "agreement")


def test_the_claims_have_their_contrasts(whole: list[Score]) -> None:
    found = {score.subject for score in whole if score.measure == "contrast"}
    assert found >= {"core", "joint_collapse", "importance_range", "redundant_sets", "scaling", "agreement"}


BARE = {"predictability", "examination"}
"""Measures of which not all rows are means over text: those of weights, and what is done."""


@pytest.mark.slow
def test_curves_and_sets_of_one_long_document_have_intervals(stack: Stack, tmp_path: Path) -> None:
    """A budget of 64 tokens, and windows of 39: once a single window, which has no interval."""
    reading = own_text(stack, windows=16, length=40, per_document=16)
    parts = ("proxies", "predictability", "ablation", "order", "manipulation", "pruning")
    asked = Examination(curve_tokens=64, parts=parts)
    scores, _ = carried_out(tmp_path / "run", stack, reading, asked)
    of_text = [row for row in scores if row.measure not in BARE or row.metric.startswith("use_cost")]
    assert {row.measure for row in of_text} == {
        "proxies", "predictability", "ablation", "verdict", "effect", "manipulation", "pruning", "contrast"
    }  # fmt: skip
    bare = [
        row for row in of_text if row.low is None and row.metric not in ("null_band", "margin", "layers", "singles")
    ]
    assert bare == []
    curves = [row for row in of_text if row.measure in ("manipulation", "pruning") and row.tokens is not None]
    assert {row.tokens for row in curves} == {64}


def test_more_curve_tokens_are_more_tokens_and_few_still_give_intervals(stack: Stack, tmp_path: Path) -> None:
    """The smaller budget is less than a window of the one document."""
    reading = own_text(stack, windows=16, length=64, per_document=16)
    for tokens, spent in ((40, 40), (800, 12 * 63)):
        asked = Examination(curve_tokens=tokens, parts=("manipulation",))
        scores, _ = carried_out(tmp_path / str(tokens), stack, reading, asked)
        rows = [row for row in scores if row.measure == "manipulation" and "@" not in row.metric]
        assert {row.tokens for row in rows} == {spent}
        assert all(row.low is not None for row in rows)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_rows_to_the_byte(
    stack: Stack, reading: Reading, whole: list[Score], tmp_path: Path
) -> None:
    again, _ = carried_out(tmp_path / "run", stack, reading, Examination())
    assert repr(again) == repr(whole)


@pytest.mark.slow
def test_another_seed_moves_measured_effects_within_their_intervals(
    stack: Stack, reading: Reading, whole: list[Score], tmp_path: Path
) -> None:
    other, _ = carried_out(tmp_path / "run", stack, reading, Examination(parts=QUICK, seed=1))
    bounds = {
        (score.subject, score.metric): score for score in other if score.measure == "ablation" and score.task == "all"
    }
    deterministic = ("skip", "mean_ablate", "neighbour_copy", "neighbour_average", "nll")
    compared = [score for score in whole if score.measure == "ablation" and score.metric in deterministic]
    assert compared
    for score in compared:
        if score.task == "all":
            found = bounds[score.subject, score.metric]
            assert (found.low or 0.0) <= score.value <= (found.high or 0.0)
    random = [(score, bounds[score.subject, "random"]) for score in whole if score.metric == "random"]
    assert any(before.value != after.value for before, after in random if before.task == "all")


@pytest.mark.slow
@pytest.mark.parametrize("part", ["racing", "structure", "pruning"])
def test_a_stopped_examination_ends_with_the_same_rows(
    stack: Stack, reading: Reading, whole: list[Score], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    """Stopped as it begins `part`; the parts before it are not carried out again."""
    asked = Examination()
    kept = []
    real = dict(module.PARTS)

    def stopped(work: object, say: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setitem(module.PARTS, part, stopped)
        with pytest.raises(KeyboardInterrupt):
            carried_out(tmp_path / "run", stack, reading, asked)
    for name in PARTS:
        monkeypatch.setitem(module.PARTS, name, lambda work, say, name=name: (kept.append(name), real[name](work, say)))
    found, _ = carried_out(tmp_path / "run", stack, reading, asked)
    assert tuple(kept) == PARTS[PARTS.index(part) :]
    assert found == whole


def test_a_part_that_cannot_be_had_says_why_and_the_others_go_on(
    stack: Stack, reading: Reading, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(work: object, say: object) -> None:
        raise MeasureError("not of this model")

    monkeypatch.setitem(module.PARTS, "ablation", refuses)
    said: list[str] = []
    scores, notes = carried_out(tmp_path / "run", stack, reading, Examination(parts=QUICK), Watcher(say=said.append))
    assert notes["ablation"] == ["not of this model"]
    assert "ablation: not of this model" in said
    assert {"proxies", "racing"} <= {score.measure for score in scores}


def test_layers_of_unlike_shapes_lose_the_parts_that_compare_weights(tmp_path: Path) -> None:
    model = tiny_llama(depth=DEPTH)
    wide = nn.Linear(32, 96, bias=False)
    layer = model.model.layers[2].mlp
    layer.gate_proj, layer.up_proj, layer.down_proj = wide, nn.Linear(32, 96, bias=False), nn.Linear(96, 32, bias=False)
    stack = load(model)
    asked = Examination(parts=("structure", "deltas", "ablation"))
    scores, notes = carried_out(tmp_path / "run", stack, own_text(stack, windows=16, length=12), asked)
    deltas = {score.task for score in scores if score.measure == "deltas"}
    assert "self_attn.q_proj.weight" in deltas
    assert "mlp.up_proj.weight" not in deltas
    averaged = {score.subject for score in scores if score.metric == "neighbour_average"}
    assert averaged.isdisjoint({"1", "2", "3"})
    assert any("unlike shapes" in text for text in notes["ablation"])


def test_half_precision_weights_are_measured(tmp_path: Path) -> None:
    stack = load(tiny_llama(depth=4).to(torch.bfloat16))
    reading = own_text(load(tiny_llama(depth=4)), windows=16, length=12)
    scores, _ = carried_out(tmp_path / "run", stack, reading, Examination(parts=("deltas", "structure", "ablation")))
    assert {"deltas", "structure", "ablation"} <= {score.measure for score in scores}


def test_a_shallow_model_is_refused(tmp_path: Path) -> None:
    stack = load(tiny_llama(depth=3))
    with pytest.raises(MeasureError, match=r"has 3 layers; .* at least 4"):
        carried_out(tmp_path / "run", stack, own_text(stack, windows=8, length=8), Examination())


def test_too_little_text_says_how_much_is_needed(stack: Stack, tmp_path: Path) -> None:
    reading = own_text(stack, windows=3, length=12)
    scores, notes = carried_out(tmp_path / "run", stack, reading, Examination(parts=("proxies", "ablation", "racing")))
    assert any("fewer than 8: give a longer text" in text for text in notes["racing"])
    assert any("needs at least 8 windows or documents: give a text of" in text for text in notes["proxies"])
    assert any(score.measure == "ablation" and score.metric == "skip" for score in scores)


def test_with_a_budget_the_race_gives_the_verdicts(stack: Stack, reading: Reading, tmp_path: Path) -> None:
    asked = Examination(parts=("ablation", "racing"), budget=120)
    scores, _ = carried_out(tmp_path / "run", stack, reading, asked)
    race = {score.subject: score.metric for score in scores if score.measure == "racing" and score.subject != "race"}
    told = {score.subject: score.metric for score in scores if score.measure == "verdict"}
    assert told == race | {"all": "margin"}
    assert max(score.tokens or 0 for score in scores if score.measure == "ablation") <= 120


def test_parts_are_carried_out_in_their_own_order() -> None:
    asked = Examination(parts=("pruning", "ablation", "proxies"))
    assert asked.parts == ("proxies", "ablation", "pruning")
    assert set(module.PARTS) == set(PARTS)
    assert list(module.PARTS) == list(PARTS)


@pytest.mark.parametrize(("settings", "message"), [
    ({"parts": ("ablaton",)}, "unknown part 'ablaton'.*ablation"),
    ({"parts": ("pruning", "proxies")}, "add ablation to --parts"),
])  # fmt: skip
def test_what_cannot_be_asked_is_refused(settings: dict[str, tuple[str, ...]], message: str) -> None:
    with pytest.raises(MeasureError, match=message):
        Examination(**settings)  # type: ignore[arg-type]


def test_every_setting_is_part_of_what_a_run_is() -> None:
    plain = Examination()
    for changed in (
        replace(plain, parts=("deltas",)), replace(plain, curve_tokens=9), replace(plain, budget=9),
        replace(plain, margin=0.5), replace(plain, thorough=True),
    ):  # fmt: skip
        assert changed.settings() != plain.settings()
    assert all(set(needed) <= set(PARTS) for needed in NEEDS.values())
