"""Errors accumulate, and only scaling leaves a set whole: what the claims say in worlds where the answer is known."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from layerwise.measure.contrasts.accumulation import SCALE, SMALL, accumulation_rows, joint_manipulation_rows
from layerwise.results.rows import Score
from report.claims.documents import part
from report.claims.truths import POWER, WRONG, claim_of, concluded, share
from tier import by_tier

DEPTH = 12
LAYERS = 4
RUNS = by_tier(fast=40, full=100)
Truth = Callable[[int], Iterable[Score]]


def predicted(joint: float, single: float, *, noise: float = 0.1, documents: int = 40) -> Truth:
    """Four predicted layers cost `joint` together and `single` one by one; random errors add up."""
    arms = [joint, *[single] * LAYERS, 4 * 0.3, *[0.3] * LAYERS]
    return lambda run: accumulation_rows(
        part(arms, run, documents=documents, noise=noise), "set:4", seed=run, resamples=300
    )


def manipulated(
    scaled: float, rivals: float, *, largest: float = 6.0, noise: float = 0.02, documents: int = 20
) -> Truth:
    """Three layers cost `scaled` under scaling and `rivals` under two other strategies of its size."""
    joint = [(SCALE, SMALL), (SCALE, 1.0), ("noise", SMALL), ("noise", 1.0), ("copy", SMALL), ("copy", 1.0)]
    costs = [scaled, largest, rivals, largest, rivals, largest]
    arms = [*costs, *(cost / 3 for cost in costs for _ in range(3))]
    return lambda run: joint_manipulation_rows(
        part(arms, run, documents=documents, noise=noise), joint, 3, seed=run, resamples=300
    )


@pytest.mark.simulated
@pytest.mark.parametrize(
    ("truth", "right"),
    [
        (predicted(4.0, 0.3), "supported"),  # super-additive
        (predicted(1.2, 0.3), "explained by the null"),  # additive
        (predicted(4.0, 1.0), "explained by the null"),
        (predicted(1.2, 0.6), "contradicted"),  # together they do less
    ],
)
def test_additive_and_super_additive_stacks_are_distinguished(truth: Truth, right: str) -> None:
    counts = concluded("error_accumulation", truth, DEPTH, RUNS)
    assert share(counts, right) >= 1 - WRONG, counts


@pytest.mark.simulated
def test_too_little_text_says_so() -> None:
    truth = predicted(1.8, 0.3, noise=2.0, documents=8)
    counts = concluded("error_accumulation", truth, DEPTH)
    assert share(counts, "not resolvable") > 0.5
    assert share(counts, "explained by the null", "contradicted") <= WRONG, counts
    assert any("would decide" in claim_of("error_accumulation", truth(run), DEPTH).why for run in range(5))


@pytest.mark.nightly
def test_the_printed_resolution_is_found() -> None:
    """A share as large as the printed one is found in as many runs as were said."""
    left = 0.5
    for _ in range(3):
        rows = [{row.metric: row for row in predicted(1.2 / (1 - left), 0.3, noise=1.0)(run)} for run in range(40)]
        left = min(0.9, max(0.2, sum(row["share"].mde or 0.0 for row in rows) / len(rows)))
    counts = concluded("error_accumulation", predicted(1.2 / (1 - left), 0.3, noise=1.0), DEPTH)
    assert share(counts, "supported") >= POWER, counts


@pytest.mark.simulated
@pytest.mark.parametrize(
    ("truth", "right"),
    [
        (manipulated(0.05, 0.5), "supported"),
        (manipulated(0.05, 0.05), "explained by the null"),  # at equal size all are as mild
        pytest.param(
            manipulated(0.8, 0.8), "contradicted", marks=pytest.mark.nightly
        ),  # scaled together, the set is lost
        pytest.param(manipulated(0.05, 0.05, largest=0.06), "contradicted", marks=pytest.mark.nightly),  # all are mild
    ],
)
def test_each_world_of_manipulated_sets_is_told(truth: Truth, right: str) -> None:
    counts = concluded("joint_manipulation", truth, DEPTH)
    assert share(counts, right) >= 1 - WRONG, counts


def test_the_figures_hold_joint_and_single_costs_and_the_null() -> None:
    rows = [*predicted(4.0, 0.3, noise=0.0)(0), *manipulated(0.05, 0.5, noise=0.0)(0)]
    claim = claim_of("error_accumulation", rows, DEPTH)
    assert claim.figures.startswith("4 predicted layers cost +")
    assert "one by one" in claim.figures
    assert "of random errors of the same norm a share of" in claim.figures
    assert "of manipulated layers" in claim.figures
    assert "one by one" in claim_of("joint_manipulation", rows, DEPTH).figures


def test_without_a_set_nothing_is_measured() -> None:
    assert {claim_of(rule, [], DEPTH).verdict for rule in ("error_accumulation", "joint_manipulation")} == {
        "not measured"
    }
