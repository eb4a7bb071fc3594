"""Kinship of layers: spans and units compared without asking which unit is which."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from layerwise.measure.stats.null_comparison import NullComparison
from layerwise.measure.weights.subspace_similarity import alignments, docs, leading, leading_count
from measure.planted import noise
from tier import by_tier


@pytest.mark.parametrize("shape", [(40, 24), (24, 40), (24, 24)])
def test_leading_vectors_are_those_of_the_decomposition(shape: tuple[int, int]) -> None:
    matrix = noise(1, *shape)[0].double()
    count = leading_count(*shape)
    left, _, right = torch.linalg.svd(matrix, full_matrices=False)
    found = leading(matrix)
    pairs = alignments([found.stream, right[:count].T])
    assert pairs[0, 1] == pytest.approx(1)
    assert alignments([found.units, left[:, :count]])[0, 1] == pytest.approx(1)


def test_random_spans_align_by_their_share_of_the_space() -> None:
    spans = [leading(noise(1, 200, 80, seed)[0].double()).stream for seed in range(12)]
    pairs = alignments(spans)
    others = pairs[~torch.eye(12, dtype=torch.bool).numpy()]
    assert others.mean() == pytest.approx(16 / 80, abs=0.01)
    assert pairs.diagonal() == pytest.approx(1)


@settings(max_examples=by_tier(fast=3, full=8, nightly=40), deadline=None)
@given(seed=st.integers(0, 1000))
def test_the_order_of_units_does_not_matter(seed: int) -> None:
    left, right = noise(2, 20, 8, seed).double()
    order = torch.randperm(20, generator=torch.Generator().manual_seed(seed))
    signs = torch.where(torch.rand(20, generator=torch.Generator().manual_seed(seed)) < 0.5, -1.0, 1.0).double()
    moved = signs[:, None] * right[order]
    assert docs(left, moved) == pytest.approx(docs(left, right))
    assert docs(left, right) == pytest.approx(docs(right, left))
    spans = [leading(each).stream for each in (left, right, moved)]
    assert alignments(spans)[0, 1] == pytest.approx(alignments(spans)[0, 2])


def test_relatives_are_nearer_than_strangers() -> None:
    left, other = noise(2, 60, 30).double()
    assert docs(left, left) == pytest.approx(1)
    assert docs(left, other) < docs(left, left + 0.5 * other) < 1


def test_a_level_says_the_mean_of_its_fractions_and_repeats_its_nulls() -> None:
    fresh = NullComparison("docs", {"q": {(0, 1): (0.25, 1.0), (1, 2): (0.75, 1.0)}}).pooled()
    fractions = {"q": {(0, 1): (3.0, 4.0), (1, 2): (1.0, 4.0)}, "v": {(0, 1): (1.0, 4.0)}, "k": {(0, 1): (0.0, 0.0)}}
    level = NullComparison("docs", fractions, {"twin": fresh}, scale=2, shift=1)
    rows = {(row.layer, row.part, row.against): row.value for row in level.rows("predictability")}
    assert rows[0, "q", None] == 2.5
    assert rows[0, "v", None] == 1.5
    assert rows[0, None, None] == 2.0
    assert rows[None, "q", None] == 2.0
    assert rows[None, None, None] == 1.75
    assert rows[1, None, "twin"] == rows[None, None, "twin"] == 0.5
    assert {row.other for row in level.rows("predictability")} == {1, 2, None}
    assert not any(part == "k" for _, part, _ in rows)
