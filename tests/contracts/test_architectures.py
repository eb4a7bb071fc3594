"""Every architecture of the zoo passes `contracts.checks`, also streamed from disk, or is refused with a reason."""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from contracts import checks, naive, specimen, support
from contracts.specimen import Refusal, Specimen
from contracts.tiers import EVERY_TAG, every_type
from contracts.zoo import POPULAR, REFUSED, SUPPORTED, named
from layerwise.errors import UnsupportedModelError
from layerwise.stack import Stack, load
from layerwise.stack.executors import clone
from layerwise.stack.inputs import main_tensor

FAST = frozenset(("llama", "bert", "audio-spectrogram-transformer"))
"""One type of each of three kinds; `test_half_precision` loads one of the fourth."""


@every_type(fast=FAST, slow=EVERY_TAG - FAST)
def test_every_promise_is_kept(one: Specimen) -> None:
    subject = checks.subject(one)
    checks.check_identity(subject)
    checks.check_plans(subject)
    checks.check_recording(subject)
    if one.kind in ("decoder", "encoder"):
        checks.check_longest(subject)
    answers, halves = checks.check_decoding(subject), checks.check_halves(subject)
    row = support.committed_rows()[one.model_type]
    assert row == support.row(one, answers, halves), "run PYTHONPATH=tests python -m contracts.support"


@pytest.mark.parametrize("refusal", REFUSED, ids=str)
def test_refused_with_the_reason(refusal: Refusal) -> None:
    model = specimen.build(refusal.specimen)
    with pytest.raises(UnsupportedModelError, match=refusal.reason) as caught:
        load(model).inspect(**specimen.inputs(refusal.specimen, model))
    assert refusal.specimen.model_class in str(caught.value)


@pytest.mark.slow
def test_the_thirty_most_downloaded_families_are_there_with_their_constraints() -> None:
    rows = support.committed_rows()
    halves: Any = {name: rows[name].split("|")[5].strip() for name in POPULAR}
    table = "\n".join(support.popular_rows(halves))
    assert len(POPULAR) == 30
    assert table in support.TABLE.read_text(encoding="utf-8"), "run PYTHONPATH=tests python -m contracts.support"


def test_the_zoo_is_sorted_and_tabled_and_names_each_type_once() -> None:
    supported = [one.model_type for one in SUPPORTED]
    refused = [str(refusal) for refusal in REFUSED]
    assert supported == sorted(set(supported))
    assert refused == sorted(set(refused))
    assert not set(supported) & set(refused)

    assert set(support.committed_rows()) == {str(one) for one in (*SUPPORTED, *REFUSED)}
    rows = support.committed_rows()
    assert [rows[str(refusal)] for refusal in REFUSED] == [support.refused_row(refusal) for refusal in REFUSED]


def test_every_tag_is_kept_by_a_representative() -> None:
    def covered(types: Collection[str]) -> set[tuple[str, str]]:
        return {(one.kind, tag) for one in SUPPORTED if one.model_type in types for tag in ("", *one.tags)}

    assert covered(EVERY_TAG) == covered({one.model_type for one in SUPPORTED})
    assert any(one.model_type in EVERY_TAG for one in SUPPORTED if one.kind == "decoder" and not one.tags)


def test_the_checks_notice_exchanged_layers() -> None:
    honest = checks.subject(named("bert"))
    other = specimen.build(honest.specimen)
    layers = other.get_submodule(honest.stack.path)
    layers[1], layers[2] = layers[2], layers[1]
    misled = replace(honest, stack=Stack(other, honest.stack.path))
    with pytest.raises(AssertionError):
        checks.check_identity(misled)
    with pytest.raises(AssertionError, match="off by"):
        checks.check_plans(misled)


def test_the_decoding_check_notices_a_stale_cache_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted error: visits that keep their layer's slot decode another text."""
    subject = checks.subject(named("llama"))
    monkeypatch.setattr(clone, "INDEX_NAMES", ())
    with pytest.raises((AssertionError, IndexError, RuntimeError)):
        checks.check_decoding(subject)


# Tiny, doge asks for more experts than it has tensors, which is refused however it is loaded.
NOT_STREAMED = "doge"
STREAMED_FAST = frozenset({"gpt2"})
SKETCHES: tuple[naive.Sketch, ...] = (
    (0, 1, 2, 3, 4),
    (0, 3, 2, 1, 4),
    (4, ("group", "mean", None, (1,), (2,), (0,)), 3, 1),
)


@every_type(fast=STREAMED_FAST, slow=EVERY_TAG | {"mixtral"})
def test_layers_on_the_disk_compute_the_same_bits(one: Specimen, tmp_path: Path) -> None:
    if one.model_type == NOT_STREAMED:
        pytest.skip("a tiny one has more experts than tensors")
    model: Any = specimen.build(one)
    model.save_pretrained(tmp_path)
    whole, streamed = load(tmp_path), load(tmp_path, resident_layers=2)
    inputs = specimen.inputs(one, model)
    plans = [checks.plan_of(naive.behind(sketch, one.reads)) for sketch in SKETCHES]
    with torch.no_grad():
        for plan in plans:
            found = [stack.run(plan, stack.capture(**inputs)) for stack in (whole, streamed)]
            assert torch.equal(*found)
        for stack in (whole, streamed):
            with stack.under(plans[1]):
                found.append(main_tensor(stack.model(**inputs)))
    assert torch.equal(*found[2:])
    assert streamed.resident.cost.most_layers == 2
