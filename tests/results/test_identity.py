"""Two manifests are one run if measure and method agree; versions and hardware may differ."""

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
def test_a_different_field_is_told_with_both_values(name: str) -> None:
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
        ({"model": "stories260K", "weight_hash": "w2"}, "it was made from demo, not from stories260K. Give the model"),
        ({"model": "/data/other", "weight_hash": "w2"}, "it was made from demo, not from other."),
        ({"model": "/data/demo", "weight_hash": "w2"}, "it was made from demo, not from /data/demo."),
        ({"weight_hash": "w2"}, "it was made from another demo than this one (hash w1, now w2)."),
        ({"corpus": "a book", "corpus_hash": "c2"}, "it was measured on texts, not on a book. Give the text"),
        ({"corpus_hash": "c2"}, "it was measured on another texts than this one (hash c1, now c2)."),
        ({"families": ("swap",)}, "its choice of plans or parts is skip, swap, and swap was asked for."),
    ],
)
def test_what_differs_is_told_by_its_name_and_not_by_its_hash(changes: dict[str, object], said: str) -> None:
    with pytest.raises(RunError) as refusal:
        check_same_run(MANIFEST, replace(MANIFEST, **changes))
    assert str(refusal.value).startswith(f"This folder holds another run: {said}")


@pytest.mark.parametrize(
    ("numerics", "parts"),
    [
        ({"batch_tokens": "100", "threads": "2"}, ("batch_tokens is 4096, and 100", "Write --batch-tokens 4096,")),
        ({"batch_tokens": "4096", "threads": "1"}, ("threads is 2, and 1", "Write OMP_NUM_THREADS=2 before")),
        ({"batch_tokens": "4096"}, ("threads is 2, and not set",)),
        ({**MANIFEST.numerics, "set": "weight_decay=1"}, ("set is not set, and weight_decay=1",)),
        ({**MANIFEST.numerics, "unheard": "of"}, ("unheard is not set, and of", "repeat the settings")),
    ],
)
def test_a_setting_that_changes_bits_is_named_with_what_to_write(
    numerics: dict[str, str], parts: tuple[str, ...]
) -> None:
    with pytest.raises(RunError, match=r"--run, or use --overwrite") as refusal:
        check_same_run(MANIFEST, replace(MANIFEST, numerics=numerics))
    for part in parts:
        assert part in str(refusal.value)


def test_a_refusal_is_short_however_long_the_values_are() -> None:
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


def test_how_numbers_are_computed_does_not_name_a_run() -> None:
    assert MANIFEST.measured() == replace(MANIFEST, numerics={}).measured()


def test_changed_versions_are_put_into_words() -> None:
    now = {"torch": "2.13.0", "python": "3.11.7"}
    assert list_version_changes({"torch": "2.11.0", "python": "3.11.7"}, now) == (
        "torch was 2.11.0 when this run began and is 2.13.0 now",
    )
    assert list_version_changes(now, now) == ()
    assert list_version_changes({}, {"torch": "1"}) == ("torch was absent when this run began and is 1 now",)


def test_another_machine_is_put_into_words() -> None:
    moved = replace(MANIFEST, hardware={**MANIFEST.hardware, "kernels": "AVX512", "platform": "another"})
    (said,) = list_changes(MANIFEST, moved)
    assert said.startswith("kernels was AVX2 when this run began and is AVX512 now")
    assert said.endswith("may differ in their last bits")
    assert list_changes(MANIFEST, replace(MANIFEST, hardware={**MANIFEST.hardware, "processors": "96"})) == ()
