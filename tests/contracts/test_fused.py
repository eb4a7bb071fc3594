"""Groups that run as one, on the types of the zoo, as docs/support.md has it; and the check sees what is wrong."""

from __future__ import annotations

import pytest
import torch

from contracts import checks, fused
from contracts.specimen import Specimen
from contracts.tiers import EVERY_TAG, every_type
from contracts.zoo import SUPPORTED, named
from layerwise.stack.executors.fused import batched_parameter, cache, proof


@every_type(fast=(), slow=EVERY_TAG)
def test_groups_run_as_one_or_are_refused_as_the_page_says(one: Specimen) -> None:
    assert fused.answer(one) == fused.committed()[one.model_type], "run PYTHONPATH=tests python -m contracts.fused"


@pytest.mark.parametrize("model_type", ["llama", "gpt2", "bert", "vit"])
def test_well_known_types_are_accepted(model_type: str) -> None:
    assert fused.committed()[model_type] == fused.YES


def test_the_page_names_the_zoo() -> None:
    assert set(fused.committed()) == {one.model_type for one in SUPPORTED}
    assert sum(answer == fused.YES for answer in fused.committed().values()) >= 100


def _llama() -> checks.Subject:
    return checks.subject(named("llama"))


def test_the_proof_notices_a_wrong_product(monkeypatch: pytest.MonkeyPatch) -> None:
    """A product that gives every member the weights of the first."""
    right = batched_parameter._product
    wrong = lambda x, weights, bias: right(x, weights[:1].expand_as(weights), bias)  # noqa: E731
    monkeypatch.setattr(batched_parameter, "_product", wrong)
    assert "are not what each is by itself" in fused.reason_or_yes(_llama())


def test_the_proof_notices_a_wrong_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache that hands the members each other's earlier tokens."""
    right = cache._update

    def exchanged(whole: object, slots: list[int], *rest: object) -> object:
        return right(whole, slots[::-1], *rest)

    monkeypatch.setattr(cache, "_update", exchanged)
    assert "with a cache" in fused.reason_or_yes(_llama())


def test_the_check_notices_what_the_proof_lets_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proof, "_failure", lambda *_: None)
    right = batched_parameter._product
    monkeypatch.setattr(batched_parameter, "_product", lambda x, weights, bias: right(x, 1.001 * weights, bias))
    with torch.no_grad(), pytest.raises(AssertionError, match="units of rounding"):
        fused.reason_or_yes(_llama())
