"""Uniform rows are called uniform, learned ones not, and what neither shows is left undecided."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from layerwise.measure.weights.uniformity import MARGIN, distances, uniformity_rows
from layerwise.report.kinds import pretraining
from layerwise.results.rows import Score
from tier import by_tier

DEPTH = 6


def softmax(scalars: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rows of scalars (..., readers, sources) as weights of the sources that each reader has."""
    read = np.arange(scalars.shape[-1]) <= np.arange(scalars.shape[-2])[:, None]
    powers = np.where(read, np.exp(scalars), 0.0)
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def drawn(pull: float, noise: float, seeds: int, run: int) -> NDArray[np.float64]:
    """Weights of several seeds whose scalars are 0, but for the embedding's, and noise of each seed's own."""
    scalars = noise * np.random.default_rng(run).standard_normal((seeds, DEPTH, DEPTH + 1))
    scalars[..., 0] += pull
    return softmax(scalars)


def found(
    pull: float, noise: float, start: float = 0.0, seeds: int = 5, run: int = 0
) -> dict[tuple[object, str], Score]:
    scalars = np.zeros((DEPTH, DEPTH + 1))
    np.fill_diagonal(scalars, start)
    rows = uniformity_rows("elc", drawn(pull, noise, seeds, run), softmax(scalars))
    return {(row.part or row.layer, row.metric): row for row in rows}


def test_a_distance_is_the_weight_that_would_have_to_be_moved() -> None:
    weights = np.array([[1.0, 0, 0], [0.75, 0.25, 0], [0.2, 0.2, 0.6]])
    assert distances(weights).tolist() == pytest.approx([0.0, 0.25, 4 / 15])
    rows = uniformity_rows("elc", weights[None], np.full((3, 3), 1 / 3))
    assert {row.part or row.layer for row in rows} == {1, "output", None}
    assert all(row.low is None and row.p is None for row in rows), "one seed has no interval"


def test_the_report_has_the_same_margin() -> None:
    assert pretraining.MARGIN == MARGIN


def test_entropy_is_one_for_equal_shares_and_less_for_others() -> None:
    rows = found(0.0, 0.0)
    assert rows[None, "entropy"].value == pytest.approx(1.0)
    assert rows[None, "distance"].value == pytest.approx(0.0)
    assert found(3.0, 0.1)[None, "entropy"].value < 0.8


def test_rows_that_only_stay_where_they_began_have_learned_nothing() -> None:
    scalars = np.zeros((DEPTH, DEPTH + 1))
    np.fill_diagonal(scalars, 1.0)
    held = softmax(scalars)
    rows = {
        (row.part or row.layer, row.metric): row for row in uniformity_rows("elc-frozen", np.stack([held] * 3), held)
    }
    assert rows[None, "distance"].value == rows[None, "start"].value > MARGIN
    learned = rows[None, "learned"]
    assert (learned.value, learned.low, learned.high, learned.p) == (0.0, None, None, None), "equal seeds prove nothing"


@pytest.mark.simulated
@pytest.mark.parametrize(
    ("pull", "noise", "uniform"),
    [(0.0, 0.05, True), (1.0, 0.2, False)],
    ids=["uniform with a little noise", "all prefer the embedding"],
)
def test_the_interval_settles_what_was_planted(pull: float, noise: float, uniform: bool) -> None:
    """Of 200 studies of five seeds: at least 95 of 100 right, and at most 5 of 100 wrong."""
    runs = by_tier(fast=20, full=60, nightly=200)
    distances_of = [found(pull, noise, run=run)[None, "distance"] for run in range(runs)]
    below = sum((row.high or 1.0) < MARGIN for row in distances_of)
    above = sum((row.p or 1.0) < 0.05 for row in distances_of)
    right, wrong = (below, above) if uniform else (above, below)
    assert right >= 0.95 * runs
    assert wrong <= 0.05 * runs


@pytest.mark.simulated
def test_at_the_margin_non_uniform_is_said_in_at_most_5_of_100() -> None:
    """Rows whose mean distance is the margin exactly: their distances are put there, seed noise and all."""
    runs = by_tier(fast=60, full=200, nightly=1_000)
    chance = np.random.default_rng(0)
    wrong = 0
    for _ in range(runs):
        moved = MARGIN + 0.02 * chance.standard_normal(5)
        weights = np.zeros((5, 2, 3))
        weights[:, 0, 0], weights[:, 1, 0], weights[:, 1, 1] = 1.0, 0.5 + moved, 0.5 - moved
        rows = {
            (row.part or row.layer, row.metric): row
            for row in uniformity_rows("elc", weights, np.array([[1.0, 0, 0], [0.5, 0.5, 0]]))
        }
        wrong += (rows[1, "distance"].p or 1.0) < 0.05
    assert wrong <= 0.075 * runs
