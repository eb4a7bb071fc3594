"""Predicted weights collapse together: what the claim says in worlds where the answer is known."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from layerwise.measure.contrasts.joint_collapse import joint_collapse_rows
from layerwise.results.rows import Score
from report.claims.documents import part
from report.claims.truths import POWER, WRONG, claim_of, concluded, share

DEPTH = 12


def world(
    joint: float, single: float, random: float, *, noise: float = 0.1, documents: int = 20
) -> Callable[[int], Iterable[Score]]:
    """Four predicted layers cost `joint` together and `single` one by one; random errors cost `random` together."""
    arms = [joint, random, *[single] * 4]
    return lambda run: joint_collapse_rows(part(arms, run, documents=documents, noise=noise), seed=run, resamples=300)


@pytest.mark.simulated
@pytest.mark.parametrize(
    ("truth", "right"),
    [
        (world(8.0, 0.15, 0.5), "supported"),
        (world(8.0, 1.9, 0.5), "explained by the null"),  # they add up
        (world(8.0, 0.15, 8.0), "explained by the null"),  # any error of that size
        (world(8.0, 0.15, 9.0), "explained by the null"),
        (world(0.3, 0.15, 0.1), "contradicted"),
    ],
)
def test_each_world_is_told(truth: Callable[[int], Iterable[Score]], right: str) -> None:
    assert share(concluded("joint_collapse", truth, DEPTH), right) >= 1 - WRONG  # type: ignore[arg-type]


@pytest.mark.simulated
def test_too_little_text_says_so() -> None:
    truth = world(1.5, 0.15, 0.5, noise=4.0, documents=8)
    told = concluded("joint_collapse", truth, DEPTH)
    assert share(told, "not resolvable") > 0.5
    assert share(told, "contradicted") <= WRONG
    assert share(told, "explained by the null") <= WRONG
    assert any("would decide" in claim_of("joint_collapse", truth(run), DEPTH).why for run in range(5))


@pytest.mark.nightly
@pytest.mark.parametrize("documents", [10, 20])
def test_a_collapse_of_one_nat_is_called_so_no_more_often_than_chance(documents: int) -> None:
    told = concluded("joint_collapse", world(1.0, 0.02, 0.05, documents=documents, noise=0.3), DEPTH)
    assert share(told, "supported") <= WRONG
    assert share(told, "contradicted") <= WRONG


@pytest.mark.nightly
@pytest.mark.parametrize(("single", "random"), [(1.5, 0.5), (0.15, 6.0)])
def test_at_the_margin_neither_answer_is_wrong_too_often(single: float, random: float) -> None:
    """A null that leaves a quarter of the damage does not explain it; one that leaves nothing does not support it."""
    told = concluded("joint_collapse", world(8.0, single, random, noise=1.0, documents=10), DEPTH)
    assert share(told, "explained by the null", "contradicted") <= WRONG
    told = concluded("joint_collapse", world(8.0, 2.0, 0.5, noise=1.5, documents=10), DEPTH)
    assert share(told, "supported") <= WRONG


@pytest.mark.nightly
def test_the_printed_resolution_is_found() -> None:
    """The larger of the two resolutions is printed, and both nulls leave that much."""
    left = 4.0
    for _ in range(3):
        runs = [{score.metric: score for score in world(8.0, left / 4, left, noise=2.5)(run)} for run in range(40)]
        printed = [max(rows["beyond_singles"].mde or 0, rows["beyond_noise"].mde or 0) for rows in runs]
        left = 8.0 * (1 - max(0.2, sum(printed) / len(printed)))
    told = concluded("joint_collapse", world(8.0, left / 4, left, noise=2.5), DEPTH)
    assert share(told, "supported") >= POWER


def test_without_the_set_nothing_is_measured() -> None:
    assert claim_of("joint_collapse", [], DEPTH).verdict == "not measured"
