"""The claims about layer weights: matrices of single trainings, over many runs of every truth."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

from layerwise.measure.contrasts.mixture import pattern as mass
from layerwise.measure.weights.seed_agreement import seed_agreement_scores
from layerwise.models.elc.variants import first_weights
from layerwise.results.rows import Score
from report.claims.truths import NEAR_THE_BAR, POWER, WRONG, Truth, concluded, share, tells

DEPTH = 12
BIASED, EQUAL = "biased", "zero"
LEARNED = Score.of("pairs", "accuracy", 0.7, 0.65, 0.75, arm="elc")
"""How many minimal pairs it is right on."""


def start(initialisation: str) -> np.ndarray:
    """The weights before the first step: (readers, sources)."""
    found = np.zeros((DEPTH, DEPTH + 1))
    for reader in range(DEPTH):
        found[reader, : reader + 1] = first_weights(initialisation, reader + 1)
    return found


def trained(run: int, initialisation: str, *, ends: float, shared: float, seeds: int, own: float = 0.3) -> np.ndarray:
    """Seeds of one arm: training adds `ends` to the scalars of the embedding and the layer before, a pattern that all
    seeds share, and in each seed one of its own, in part by source: what comes out large is weighed alike by all.
    """
    draw = np.random.default_rng(run)
    common = shared * draw.standard_normal((DEPTH, DEPTH + 1))
    alone = own * (draw.standard_normal((seeds, DEPTH, DEPTH + 1)) + draw.standard_normal((seeds, 1, DEPTH + 1)))
    first = start(initialisation)
    moved = np.log(first, out=np.zeros_like(first), where=first > 0) + common + alone
    moved[:, :, 0] += ends
    moved[:, np.arange(DEPTH), np.arange(DEPTH)] += ends
    weights = np.exp(moved) * (first > 0)
    return np.asarray(weights / weights.sum(axis=2, keepdims=True))


def masses(initialisation: str, ends: float, seeds: int = 5, own: float = 0.3) -> Truth:
    def rows(run: int) -> Iterable[Score]:
        weights = trained(run, initialisation, ends=ends, shared=0.2, seeds=seeds, own=own)
        return [*mass("elc", weights, start(initialisation)), LEARNED]

    return rows


def agreements(initialisation: str, shared: float, seeds: int = 5) -> Truth:
    def rows(run: int) -> Iterable[Score]:
        weights = trained(run, initialisation, ends=0.0, shared=shared, seeds=seeds)
        return [*seed_agreement_scores("elc", weights, initial=start(initialisation), draws=100, seed=run), LEARNED]

    return rows


@pytest.mark.simulated
@pytest.mark.parametrize(
    ("rows", "right"),
    [
        (masses(BIASED, 0.8), "supported"),
        (masses(EQUAL, 1.0, seeds=3), "supported"),
        (masses(EQUAL, -1.5), "contradicted"),
        (masses(BIASED, -3.0), "contradicted"),
        (masses(BIASED, 0.0, seeds=8, own=0.15), "explained by the null"),  # it began so
        (masses(EQUAL, 0.0, seeds=8, own=0.15), "explained by the null"),  # equal shares
        pytest.param(masses(BIASED, 0.3, seeds=2, own=1.2), "not resolvable", marks=NEAR_THE_BAR),
    ],
)
def test_the_pattern_is_beside_bound_the_start(rows: Truth, right: str) -> None:
    tells("pattern", rows, DEPTH, right)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("rows", "right"),
    [
        (agreements(BIASED, 0.6), "supported"),
        (agreements(EQUAL, 0.6, seeds=3), "supported"),
        (agreements(BIASED, 0.0, seeds=8), "explained by the null"),
        (agreements(EQUAL, 0.0, seeds=8), "contradicted"),
    ],
)
def test_seeds_are_alike_beyond_their_start_or_not(rows: Truth, right: str) -> None:
    tells("alike", rows, DEPTH, right)


@pytest.mark.nightly
@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_few_seeds_that_share_nothing_are_not_called_alike(seeds: int) -> None:
    counts = concluded("alike", agreements(BIASED, 0.0, seeds), DEPTH)
    assert share(counts, "supported") <= WRONG, counts
    assert share(counts, "not resolvable") >= (POWER if seeds < 5 else 0.0), counts


@pytest.mark.nightly
def test_an_agreement_that_just_counts_is_seen_and_never_called_nothing() -> None:
    """The pattern that is shared makes a rank correlation of 0.2, which is the margin and the printed resolution."""
    counts = concluded("alike", agreements(BIASED, 0.24), DEPTH)
    assert share(counts, "explained by the null", "contradicted") <= WRONG, counts
    assert share(counts, "supported") >= 0.7, counts
