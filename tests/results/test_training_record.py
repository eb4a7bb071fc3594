"""The training record of a model: what is read is what was written, and nothing else is accepted as one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from layerwise.errors import RunError
from layerwise.results.training_record import FILE, FORMAT, LogEntry, TrainingRecord, refined_at, trained_models

ENTRY = LogEntry(20, "train", 1.5)
RECIPE = {"settings": {"batch_size": 8}}
RECORD = TrainingRecord("layershuffle", 0, "w1", "d1", "digits", RECIPE, 40, 1.0, 320, 2.5, 20, (ENTRY,))


def spoilt(**changes: object) -> str:
    return json.dumps({**json.loads(json.dumps(CONTENT)), **changes})


CONTENT = {
    "format": FORMAT, "arm": "layershuffle", "seed": 0, "base": "w1", "data": "d1",
    "data_name": "digits", "recipe": {"settings": {"batch_size": 8}}, "steps": 40, "epochs": 1.0, "examples": 320,
    "seconds": 2.5, "best_step": 20,
    "history": [{"step": 20, "kind": "train", "loss": 1.5}], "figures": {},
}  # fmt: skip


def test_what_is_written_is_read(tmp_path: Path) -> None:
    assert TrainingRecord.read(tmp_path) is None
    RECORD.write(tmp_path)
    assert json.loads((tmp_path / FILE).read_text()) == CONTENT
    assert TrainingRecord.read(tmp_path) == RECORD


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "is not JSON"),
        ("[]", "is a list and not an object"),
        (spoilt(steps="many"), 'is "many" where a whole number belongs'),
        (spoilt(seconds=float("inf")), "is not a finite number where a number belongs"),
        (spoilt(recipe=[1]), "is a list where an object belongs"),
        (spoilt(history=[1]), "is 1 and not an object of fields"),
        (spoilt(history=[{"step": 1}]), "missing ['kind', 'loss']"),
        (spoilt(figures={"flops": "many"}), 'is "many" where a number belongs'),
        (spoilt().replace('"steps": 40', f'"steps": {"4" * 5000}'), "more than 4,300 digits"),
        (spoilt().replace('"steps": 40, ', ""), "missing ['steps']"),
    ],
)
def test_what_is_no_record_is_refused(tmp_path: Path, text: str, part: str) -> None:
    (tmp_path / FILE).write_text(text)
    with pytest.raises(RunError) as refusal:
        TrainingRecord.read(tmp_path)
    assert part in str(refusal.value)
    assert FILE in str(refusal.value)


@pytest.mark.parametrize(
    ("version", "named"),
    [(FORMAT - 1, f"format {FORMAT - 1};"), (FORMAT + 1, f"format {FORMAT + 1};"), ("2", "unknown")],
)
def test_a_record_of_another_layout_is_refused_by_its_version(tmp_path: Path, version: object, named: str) -> None:
    (tmp_path / FILE).write_text(spoilt(format=version))
    with pytest.raises(RunError) as refusal:
        TrainingRecord.read(tmp_path)
    assert named in str(refusal.value)
    assert f"this layerwise reads format {FORMAT}" in str(refusal.value)


def test_a_record_without_a_version_is_of_an_unknown_one(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(json.dumps({name: value for name, value in CONTENT.items() if name != "format"}))
    with pytest.raises(RunError, match="has format unknown"):
        TrainingRecord.read(tmp_path)


def test_folders_that_no_training_has_written_are_no_models(tmp_path: Path) -> None:
    for seed in ("seed-10", "seed-2", "seed-x", "seed-", "seed-" + "9" * 200):
        path = tmp_path / "baseline" / seed / "model"
        path.mkdir(parents=True)
        RECORD.write(path)
    assert [model.parts[-2] for model in trained_models(tmp_path)] == ["seed-2", "seed-10"]


def test_a_number_of_layers_has_few_digits() -> None:
    assert refined_at("retrained-12") == 12
    assert refined_at("retrained-" + "9" * 5000) is None
