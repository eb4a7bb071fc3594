"""A run resumes only with the same model, data and numerics."""

from dataclasses import fields, replace

import pytest

from layerwise.errors import RunError
from layerwise.results.manifest import MEASURED, Manifest, check_same_run, list_changes, list_version_changes
from results import samples

MANIFEST = replace(
    samples.MANIFEST,
    numerics={"batch_tokens": "4096", "threads": "2"},
    hardware={"machine": "x86_64", "kernels": "AVX2"},
)


@pytest.mark.parametrize("name", MEASURED)
def test_a_different_field_is_reported_with_both_values(name: str) -> None:
    before = getattr(MANIFEST, name)
    other = replace(MANIFEST, **{name: (*before, "x") if isinstance(before, tuple) else f"{before}9"})
    with pytest.raises(RunError, match="--overwrite") as refusal:
        check_same_run(MANIFEST, other)
    for value in (before, getattr(other, name)):
        assert (", ".join(value) if isinstance(value, tuple) else str(value)) in str(refusal.value)
    assert "hash is" not in str(refusal.value)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model": "stories260K", "weight_hash": "w2"}, "it uses demo, not stories260K. Pass the original model"),
        ({"model": "/data/other", "weight_hash": "w2"}, "it uses demo, not other."),
        ({"model": "/data/demo", "weight_hash": "w2"}, "it uses demo, not /data/demo."),
        ({"weight_hash": "w2"}, "it uses another demo than this one (hash w1, now w2)."),
        ({"corpus": "a book", "corpus_hash": "c2"}, "it was measured on texts, not on a book. Pass the original text"),
        ({"corpus_hash": "c2"}, "it was measured on another texts than this one (hash c1, now c2)."),
        ({"families": ("swap",)}, "its choice of plans or parts is skip, swap, not swap."),
    ],
)
def test_differences_are_reported_by_name_not_hash(changes: dict[str, object], said: str) -> None:
    with pytest.raises(RunError) as refusal:
        check_same_run(MANIFEST, replace(MANIFEST, **changes))
    assert str(refusal.value).startswith(f"This directory contains another run: {said}")


@pytest.mark.parametrize(
    ("numerics", "parts"),
    [
        ({"batch_tokens": "100", "threads": "2"}, ("batch_tokens is 4096, not 100", "Pass --batch-tokens 4096,")),
        ({"batch_tokens": "4096", "threads": "1"}, ("threads is 2, not 1", "Set OMP_NUM_THREADS=2")),
        ({"batch_tokens": "4096"}, ("threads is 2, not unset",)),
        ({**MANIFEST.numerics, "set": "weight_decay=1"}, ("set is unset, not weight_decay=1",)),
        ({**MANIFEST.numerics, "unheard": "of"}, ("unheard is unset, not of", "pass the original settings")),
    ],
)
def test_different_numerics_are_reported_with_the_fix(numerics: dict[str, str], parts: tuple[str, ...]) -> None:
    with pytest.raises(RunError, match=r"--run, or pass --overwrite") as refusal:
        check_same_run(MANIFEST, replace(MANIFEST, numerics=numerics))
    for part in parts:
        assert part in str(refusal.value)


def test_messages_are_short_for_long_values() -> None:
    with pytest.raises(RunError) as refusal:
        check_same_run(MANIFEST, replace(MANIFEST, families=tuple(f"plan:{number}" for number in range(10_000))))
    assert len(str(refusal.value)) < 500


@pytest.mark.parametrize("name", sorted({item.name for item in fields(Manifest)} - {*MEASURED, "numerics"}))
def test_provenance_may_differ(name: str) -> None:
    changed = {
        "versions": {"torch": "1"},
        "hardware": {"machine": "abacus"},
        "command": ("other",),
        "experiment": {"seed": 1},
    }.get(name, "other")
    check_same_run(MANIFEST, replace(MANIFEST, **{name: changed}))


def test_numerics_do_not_change_the_identity() -> None:
    assert MANIFEST.measured() == replace(MANIFEST, numerics={}).measured()


def test_changed_versions_are_reported() -> None:
    now = {"torch": "2.13.0", "python": "3.11.7"}
    assert list_version_changes({"torch": "2.11.0", "python": "3.11.7"}, now) == (
        "torch was 2.11.0 when this run began and is now 2.13.0",
    )
    assert list_version_changes(now, now) == ()
    assert list_version_changes({}, {"torch": "1"}) == ("torch was absent when this run began and is now 1",)


def test_changed_hardware_is_reported() -> None:
    moved = replace(MANIFEST, hardware={**MANIFEST.hardware, "kernels": "AVX512", "platform": "another"})
    (said,) = list_changes(MANIFEST, moved)
    assert said.startswith("kernels was AVX2 when this run began and is now AVX512")
    assert said.endswith("may differ in their last bits")
    assert list_changes(MANIFEST, replace(MANIFEST, hardware={**MANIFEST.hardware, "processors": "96"})) == ()
