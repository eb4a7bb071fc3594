"""Manifests and training records read back as written; other JSON is refused."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerwise.errors import RunError
from layerwise.results.checked import to_dataclass
from layerwise.results.manifest import Manifest
from layerwise.results.training_record import FILE, LogEntry, TrainingRecord, find_trained_models, parse_refined_depth
from layerwise.train.methods import LayerMixingOptions
from results.samples import MANIFEST

RECORD = TrainingRecord(
    "layershuffle",
    0,
    "w1",
    "d1",
    "digits",
    {"settings": {"batch_size": 8}},
    40,
    1.0,
    320,
    2.5,
    20,
    (LogEntry(20, "train", 1.5),),
)
CONTENT = {
    "arm": "layershuffle",
    "seed": 0,
    "base": "w1",
    "data": "d1",
    "data_name": "digits",
    "recipe": {"settings": {"batch_size": 8}},
    "steps": 40,
    "epochs": 1.0,
    "examples": 320,
    "seconds": 2.5,
    "best_step": 20,
    "history": [{"step": 20, "kind": "train", "loss": 1.5}],
    "figures": {},
}

texts = st.text(max_size=8)
words = st.tuples() | st.tuples(texts) | st.tuples(texts, texts)
manifests = st.builds(
    Manifest,
    **dict.fromkeys(("model", "weight_hash", "dtype", "device", "corpus", "corpus_hash", "created"), texts),
    **{name: st.integers(min_value=0, max_value=2**62) for name in ("documents", "tokens", "window", "seed")},
    **dict.fromkeys(("families", "tasks", "command"), words),
    **{name: st.dictionaries(texts, texts, max_size=3) for name in ("versions", "hardware", "numerics")},
    revision=st.none() | texts,
)


@given(manifests)
def test_a_manifest_is_read_as_it_was_written(written: Manifest) -> None:
    assert Manifest.from_json(written.to_json()) == written


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert TrainingRecord.read(tmp_path) is None
    RECORD.write(tmp_path)
    assert json.loads((tmp_path / FILE).read_text()) == CONTENT
    assert TrainingRecord.read(tmp_path) == RECORD


def test_provenance_is_filled_in() -> None:
    assert set(MANIFEST.versions) == {"python", "layerwise", "numpy", "torch", "transformers"}
    assert set(MANIFEST.hardware) == {"platform", "machine", "processor", "processors"}
    assert MANIFEST.created.endswith("+00:00")


BOTH: tuple[tuple[str | dict[str, Any], str], ...] = (
    ("", "is not JSON"),
    ("{", "is not JSON"),
    ("[]", "is a list and not an object of fields"),
    ('"manifest"', 'is "manifest" and not an object'),
    ("[" * 100_000, "nested too deeply"),
    ({"surprise": 1}, "unknown ['surprise']"),
    ({"seed": "7"}, 'is "7" where a whole number belongs'),
    ({"seed": "7" * 5000}, "where a whole number belongs"),
    ({"seed": True}, "is true where a whole number belongs"),
    ({"seed": 7.5}, "is 7.5 where a whole number belongs"),
    ({"seed": 2**63}, "more than 64 bits"),
    ({"seed": float("inf")}, "is not a finite number"),
    ({"seed": float("nan")}, "is not a finite number"),
)
OF_MANIFESTS = (
    ({"tokens": -1}, "tokens in the manifest is -1 where a whole number of at least 0 belongs"),
    ({"model": None}, "model in the manifest is null where a text belongs"),
    ({"model": ["demo"]}, "model in the manifest is a list"),
    ({"model": "\ud800"}, "not Unicode"),
    ({"revision": 1}, "revision in the manifest is 1 where a text or nothing belongs"),
    ({"families": "skip"}, 'families in the manifest is "skip" where a list belongs'),
    ({"families": ["skip", 1]}, "families[1] in the manifest is 1 where a text belongs"),
    ({"versions": ["torch"]}, "versions in the manifest is a list where an object belongs"),
    ({"versions": {"python": "3", "torch": 2}}, "versions['torch'] in the manifest is 2 where a text belongs"),
    ({"versions": {"\ud800": "3"}}, "not Unicode"),
    ({"hardware": None}, "hardware in the manifest is null where an object belongs"),
    ({"experiment": {"seeds": [10**30]}}, "experiment in the manifest is a number of more than 64 bits"),
    ({"command": json.loads("[" * 500 + "]" * 500)}, "command in the manifest is nested too deeply"),
    (json.dumps({"model": "demo"}), "missing ['command'"),
)
OF_RECORDS = (
    ({"steps": "many"}, f'{FILE} is "many" where a whole number belongs'),
    ({"recipe": [1]}, "is a list where an object belongs"),
    ({"history": [1]}, "history[0] in"),
    ({"history": [{"step": 1}]}, "missing ['kind']"),
    ({"figures": {"flops": "many"}}, f'{FILE} is "many" where a number belongs'),
    (json.dumps({**CONTENT, "steps": 0}).replace('"steps": 0, ', ""), "missing ['steps']"),
)


@pytest.mark.parametrize(
    ("kind", "damage", "part"),
    [*(("manifest", *row) for row in (*BOTH, *OF_MANIFESTS)), *(("record", *row) for row in (*BOTH, *OF_RECORDS))],
)
def test_what_was_not_written_is_refused_by_its_field(
    tmp_path: Path, kind: str, damage: str | dict[str, Any], part: str
) -> None:
    content = json.loads(MANIFEST.to_json()) if kind == "manifest" else CONTENT
    text = damage if isinstance(damage, str) else json.dumps({**content, **damage})
    (tmp_path / FILE).write_text(text)
    with pytest.raises(RunError) as refusal:
        Manifest.from_json(text) if kind == "manifest" else TrainingRecord.read(tmp_path)
    assert part in str(refusal.value)
    assert len(str(refusal.value)) < 400
    assert "the manifest" in str(refusal.value) if kind == "manifest" else FILE in str(refusal.value)


def test_a_number_without_end_is_not_read(tmp_path: Path) -> None:
    digits = "9" * 5000
    (tmp_path / FILE).write_text(json.dumps(CONTENT).replace('"steps": 40', f'"steps": {digits}'))
    with pytest.raises(RunError, match="more than 4,300 digits"):
        TrainingRecord.read(tmp_path)
    with pytest.raises(RunError, match="more than 4,300 digits"):
        Manifest.from_json(MANIFEST.to_json().replace('"seed": 7', f'"seed": {digits}'))


def test_a_choice_is_refused_with_what_there_is() -> None:
    with pytest.raises(RunError, match='kind in the options is "hard", which is none of softmax, free'):
        to_dataclass(LayerMixingOptions, {"kind": "hard"}, "the options")


def test_folders_that_no_training_has_written_are_no_models(tmp_path: Path) -> None:
    for seed in ("seed-10", "seed-2", "seed-x", "seed-", "seed-" + "9" * 200):
        path = tmp_path / "baseline" / seed / "model"
        path.mkdir(parents=True)
        replace(RECORD, seed=1).write(path)
    assert [model.parts[-2] for model in find_trained_models(tmp_path)] == ["seed-2", "seed-10"]


@pytest.mark.parametrize(("digits", "layers"), [("12", 12), ("9" * 5000, None)])
def test_a_number_of_layers_has_few_digits(digits: str, layers: int | None) -> None:
    assert parse_refined_depth(f"retrained-{digits}") == layers
