"""Importance spans orders of magnitude: what the claim says in worlds where the answer is known."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import pytest

from layerwise.measure.contrasts.importance_range import importance_range_rows
from layerwise.results.rows import Score
from report.claims.documents import part
from report.claims.truths import POWER, WRONG, claim_of, concluded, share


def world(
    effects: Sequence[float], *, noise: float = 0.01, documents: int = 20, skew: float = 0.5
) -> Callable[[int], Iterable[Score]]:
    return lambda run: importance_range_rows(
        part(effects, run, documents=documents, noise=noise, skew=skew), seed=run, resamples=300
    )


REST = (0.03, 0.02, 0.02, 0.015, 0.025, 0.02, 0.02)


@pytest.mark.simulated
@pytest.mark.parametrize(
    ("truth", "right"),
    [
        (world((6.0, *REST), noise=0.005, skew=0.2), "supported"),
        (world((3.0, 0.5, 0.3, 0.2, 0.2, 0.2, 0.0, 0.0), noise=0.001), "explained by the null"),
        (world((1.0, 0.5, 0.3, 0.2, 0.2, 0.15, 0.1)), "contradicted"),
    ],
)
def test_each_world_is_told(truth: Callable[[int], Iterable[Score]], right: str) -> None:
    assert share(concluded("importance_range", truth, 8), right) >= 1 - WRONG  # type: ignore[arg-type]


@pytest.mark.simulated
def test_too_little_text_says_so() -> None:
    truth = world((6.0, *REST), noise=0.3, documents=8)
    told = concluded("importance_range", truth, 8)
    assert share(told, "not resolvable") > 0.5
    assert share(told, "contradicted", "explained by the null") <= WRONG
    assert any("would decide" in claim_of("importance_range", truth(run), 8).why for run in range(5))


@pytest.mark.nightly
@pytest.mark.parametrize("documents", [8, 16])
def test_at_the_bound_neither_side_is_claimed_too_often(documents: int) -> None:
    for skew in (0.2, 0.5):
        truth = world((2.0, *[0.02] * 6), noise=0.01, documents=documents, skew=skew)
        told = concluded("importance_range", truth, 7)
        assert share(told, "supported") <= WRONG
        assert share(told, "contradicted", "explained by the null") <= WRONG


@pytest.mark.nightly
def test_the_printed_resolution_is_found() -> None:
    noise = 0.02
    found = [score for run in range(40) for score in world((2.0, *[0.02] * 6), noise=noise)(run)]
    resolved = [score.mde for score in found if score.metric == "range" and score.mde]
    largest = 2.0 * 10 ** (sum(resolved) / len(resolved))
    told = concluded("importance_range", world((largest, *[0.02] * 6), noise=noise), 7)
    assert share(told, "supported") >= POWER


def test_without_losses_nothing_is_measured() -> None:
    assert claim_of("importance_range", [], 8).verdict == "not measured"
