"""The manifest: it survives its own JSON, and it knows when two of them are one run."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerwise.errors import RunError
from layerwise.results.manifest import Manifest

MANIFEST = Manifest(
    model="demo",
    revision=None,
    weight_hash="w1",
    dtype="float32",
    device="cpu",
    corpus="texts",
    corpus_hash="c1",
    documents=3,
    tokens=90,
    window=64,
    families=("skip", "swap"),
    tasks=("prose",),
    seed=7,
    command=("layerwise", "sweep", "demo"),
)

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
def test_json_round_trip(manifest: Manifest) -> None:
    assert Manifest.from_json(manifest.to_json()) == manifest


def test_provenance_is_filled_in() -> None:
    assert set(MANIFEST.versions) == {"python", "layerwise", "numpy", "torch", "transformers"}
    assert set(MANIFEST.hardware) == {"platform", "machine", "processor", "processors"}
    assert MANIFEST.created.endswith("+00:00")


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("{", "not JSON"),
        ("[]", "is a list and not an object"),
        ("{}", "format unknown"),
        (json.dumps({**json.loads(MANIFEST.to_json()), "format": 2}), "format 2"),
        (json.dumps({**json.loads(MANIFEST.to_json()), "surprise": 1}), "unknown ['surprise']"),
        (json.dumps({"format": 4, "model": "demo"}), "missing ['command'"),
    ],
)
def test_other_json_is_refused(text: str, part: str) -> None:
    with pytest.raises(RunError) as refusal:
        Manifest.from_json(text)
    assert part in str(refusal.value)


def spoilt(**changes: object) -> str:
    """The manifest with some fields of another kind."""
    return json.dumps({**json.loads(MANIFEST.to_json()), **changes})


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (spoilt(seed="7"), 'seed in the manifest is "7" where a whole number belongs'),
        (spoilt(seed=True), "seed in the manifest is true"),
        (spoilt(seed=7.5), "seed in the manifest is 7.5"),
        (spoilt(seed=2**63), "more than 64 bits"),
        (spoilt(tokens=-1), "tokens in the manifest is -1"),
        (spoilt(model=None), "model in the manifest is null where a text belongs"),
        (spoilt(model=["demo"]), "model in the manifest is a list"),
        (spoilt(model="\ud800"), "not Unicode"),
        (spoilt(revision=1), "revision in the manifest is 1 where a text belongs"),
        (spoilt(families="skip"), 'families in the manifest is "skip" where a list belongs'),
        (spoilt(families=["skip", 1]), "families in the manifest is 1"),
        (spoilt(versions=["torch"]), "versions in the manifest is a list where an object belongs"),
        (spoilt(versions={"torch": 2}), "versions in the manifest is 2"),
        (spoilt(hardware=None), "hardware in the manifest is null"),
        (spoilt().replace('"seed": 7', f'"seed": {"9" * 5000}'), "more than 4,300 digits"),
        (spoilt().replace('"seed": 7', '"seed": 1e999'), "seed in the manifest is not a finite number"),
        (spoilt().replace('"seed": 7', '"seed": NaN'), "seed in the manifest is not a finite number"),
        ("[" * 100_000, "nested too deeply"),
        (spoilt(command=json.loads("[" * 500 + "]" * 500)), "nested too deeply"),
        ('"manifest"', 'is "manifest" and not an object'),
    ],
)
def test_a_field_of_another_kind_is_named(text: str, part: str) -> None:
    with pytest.raises(RunError) as refusal:
        Manifest.from_json(text)
    assert part in str(refusal.value)
    assert len(str(refusal.value)) < 300
