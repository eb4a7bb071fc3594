"""Redundant layers are redundant together: what the claim says in worlds where the answer is known."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import pytest

from layerwise.measure.contrasts.redundant_sets import redundant_sets, redundant_sets_rows
from layerwise.results.rows import PlanRecord, Score
from report.claims.documents import part
from report.claims.truths import POWER, WRONG, claim_of, concluded, share

RANKING = {0: 4.0, 1: 0.05, 2: 0.05, 3: 0.05, 4: 1.0, 5: 2.0}
SETS = 20


def records(size: int, strategy: str, count: int) -> list[PlanRecord]:
    return [
        PlanRecord(f"{strategy}{size}-{number}", "pruning", strategy, size, number, 1, 1, 1, 1)
        for number in range(count)
    ]


def world(
    joint: float, random: float, *, noise: float = 0.02, documents: int = 16, spread: float = 0.2
) -> Callable[[int], Iterable[Score]]:
    """The chosen three layers cost `joint`; random sets cost `random` at the mean, each its own."""

    def truth(run: int) -> Iterable[Score]:
        own = np.random.default_rng([run, 7]).lognormal(-0.5 * spread**2, spread, SETS) * random
        made = part([joint, *own], run, documents=documents, noise=noise)
        return redundant_sets_rows(made, 3, 0.15, seed=run, resamples=300)

    return truth


@pytest.mark.simulated
@pytest.mark.parametrize(
    ("truth", "right"),
    [
        (world(0.1, 2.0), "supported"),
        (world(0.1, 0.1), "explained by the null"),
        (world(0.6, 2.0), "contradicted"),
        (world(0.6, 0.6), "contradicted"),
    ],
)
def test_each_world_is_told(truth: Callable[[int], Iterable[Score]], right: str) -> None:
    assert share(concluded("redundant_sets", truth, 6), right) >= 1 - WRONG  # type: ignore[arg-type]


@pytest.mark.simulated
def test_too_little_text_says_so() -> None:
    truth = world(0.1, 2.0, noise=1.0, documents=8)
    told = concluded("redundant_sets", truth, 6)
    assert share(told, "not resolvable") > 0.5
    assert share(told, "contradicted", "explained by the null") <= WRONG
    assert any("would decide" in claim_of("redundant_sets", truth(run), 6).why for run in range(5))


@pytest.mark.nightly
@pytest.mark.parametrize("documents", [8, 16])
def test_at_the_bound_neither_side_is_claimed_too_often(documents: int) -> None:
    told = concluded("redundant_sets", world(0.2, 2.0, documents=documents, noise=0.1), 6)
    assert share(told, "supported", "explained by the null") <= WRONG
    assert share(told, "contradicted") <= WRONG


@pytest.mark.nightly
def test_random_sets_that_do_as_well_are_no_support_and_worse_ones_no_null() -> None:
    told = concluded("redundant_sets", world(0.1, 0.1, noise=0.05), 6)
    assert share(told, "supported") <= WRONG
    told = concluded("redundant_sets", world(0.1, 0.15, noise=0.05), 6)
    assert share(told, "explained by the null") <= WRONG


@pytest.mark.nightly
def test_the_printed_resolution_is_found() -> None:
    noise = 0.15
    found = [score for run in range(40) for score in world(0.1, 2.0, noise=noise)(run)]
    resolved = [score.mde for score in found if score.metric == "joint" and score.mde]
    told = concluded("redundant_sets", world(0.2 - sum(resolved) / len(resolved), 2.0, noise=noise), 6)
    assert share(told, "supported") >= POWER


def test_without_the_sets_nothing_is_measured() -> None:
    assert redundant_sets([], "0-5", [], RANKING, seed=0) == []
    listed = [*records(3, "skip", 1), *records(3, "random", 20), *records(1, "skip", 1)]
    assert redundant_sets([], "0-5", listed, RANKING, seed=0) == []
    assert claim_of("redundant_sets", [], 6).verdict == "not measured"
