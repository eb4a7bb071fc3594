"""Manifests and training records round-trip; other JSON is refused."""

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
    "variant": "layershuffle",
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
def test_manifests_round_trip(written: Manifest) -> None:
    assert Manifest.from_json(written.to_json()) == written


def test_training_records_round_trip(tmp_path: Path) -> None:
    assert TrainingRecord.read(tmp_path) is None
    RECORD.write(tmp_path)
    assert json.loads((tmp_path / FILE).read_text()) == CONTENT
    assert TrainingRecord.read(tmp_path) == RECORD


BOTH: tuple[tuple[str | dict[str, Any], str], ...] = (
    ("", "is not JSON"),
    ("{", "is not JSON"),
    ("[]", "must be an object, got a list"),
    ('"manifest"', 'must be an object, got "manifest"'),
    ("[" * 100_000, "nested too deeply"),
    ({"surprise": 1}, "unknown ['surprise']"),
    ({"seed": "7"}, 'must be a whole number, got "7"'),
    ({"seed": "7" * 5000}, "must be a whole number"),
    ({"seed": True}, "must be a whole number, got true"),
    ({"seed": 7.5}, "must be a whole number, got 7.5"),
    ({"seed": 2**63}, "must fit 64 bits"),
    ({"seed": float("inf")}, "must be finite"),
    ({"seed": float("nan")}, "must be finite"),
)
OF_MANIFESTS = (
    ({"tokens": -1}, "tokens in the manifest must be a whole number of at least 0, got -1"),
    ({"model": None}, "model in the manifest must be a string, got null"),
    ({"model": ["demo"]}, "model in the manifest must be a string, got a list"),
    ({"model": "\ud800"}, "must be Unicode text"),
    ({"revision": 1}, "revision in the manifest must be a string or null, got 1"),
    ({"families": "skip"}, 'families in the manifest must be a list, got "skip"'),
    ({"families": ["skip", 1]}, "families[1] in the manifest must be a string, got 1"),
    ({"versions": ["torch"]}, "versions in the manifest must be an object, got a list"),
    ({"versions": {"python": "3", "torch": 2}}, "versions['torch'] in the manifest must be a string, got 2"),
    ({"versions": {"\ud800": "3"}}, "must be Unicode text"),
    ({"hardware": None}, "hardware in the manifest must be an object, got null"),
    ({"experiment": {"seeds": [10**30]}}, "experiment in the manifest must fit 64 bits"),
    ({"command": json.loads("[" * 500 + "]" * 500)}, "command in the manifest is nested too deeply"),
    (json.dumps({"model": "demo"}), "missing ['command'"),
)
OF_RECORDS = (
    ({"steps": "many"}, f'{FILE} must be a whole number, got "many"'),
    ({"recipe": [1]}, "must be an object, got a list"),
    ({"history": [1]}, "history[0] in"),
    ({"history": [{"step": 1}]}, "missing ['kind']"),
    ({"figures": {"flops": "many"}}, f'{FILE} must be a number, got "many"'),
    (json.dumps({**CONTENT, "steps": 0}).replace('"steps": 0, ', ""), "missing ['steps']"),
)


@pytest.mark.parametrize(
    ("kind", "damage", "part"),
    [*(("manifest", *row) for row in (*BOTH, *OF_MANIFESTS)), *(("record", *row) for row in (*BOTH, *OF_RECORDS))],
)
def test_damaged_files_are_refused_with_the_field(
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


def test_very_long_numbers_are_refused(tmp_path: Path) -> None:
    digits = "9" * 5000
    (tmp_path / FILE).write_text(json.dumps(CONTENT).replace('"steps": 40', f'"steps": {digits}'))
    with pytest.raises(RunError, match="more than 4,300 digits"):
        TrainingRecord.read(tmp_path)
    with pytest.raises(RunError, match="more than 4,300 digits"):
        Manifest.from_json(MANIFEST.to_json().replace('"seed": 7', f'"seed": {digits}'))


def test_unknown_choices_are_refused_with_the_options() -> None:
    with pytest.raises(RunError, match="kind in the options must be one of softmax, free"):
        to_dataclass(LayerMixingOptions, {"kind": "hard"}, "the options")


def test_only_training_folders_are_models(tmp_path: Path) -> None:
    for seed in ("seed-10", "seed-2", "seed-x", "seed-", "seed-" + "9" * 200):
        path = tmp_path / "baseline" / seed / "model"
        path.mkdir(parents=True)
        replace(RECORD, seed=1).write(path)
    assert [model.parts[-2] for model in find_trained_models(tmp_path)] == ["seed-2", "seed-10"]
    assert parse_refined_depth("retrained-" + "9" * 5000) is None
