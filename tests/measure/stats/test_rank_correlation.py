"""Rank correlations: signs, ties, a third held fixed, and how little a few layers say."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from layerwise.errors import MeasureError
from layerwise.measure.stats.ranks import rank_correlation


def test_it_is_spearman() -> None:
    draw = np.random.default_rng(0)
    left, right = draw.normal(size=12), draw.normal(size=12)
    right[3] = right[4]
    found = rank_correlation(left, right)
    assert found is not None
    assert found.value == pytest.approx(stats.spearmanr(left, right).statistic)
    assert found.low < found.value < found.high


def test_what_the_third_explains_is_gone() -> None:
    """Both follow the damage and nothing else: raw they correlate, given the damage they do not."""
    draw = np.random.default_rng(1)
    damage = np.arange(30.0)
    left, right = damage + draw.normal(size=30), damage + draw.normal(size=30)
    raw, given = rank_correlation(left, right), rank_correlation(left, right, given=damage)
    assert raw is not None
    assert given is not None
    assert raw.low > 0.8
    assert given.low < 0 < given.high


def test_what_the_third_does_not_explain_is_left() -> None:
    draw = np.random.default_rng(2)
    damage, own = draw.normal(size=30), draw.normal(size=30)
    found = rank_correlation(own + damage, own - damage, given=damage)
    assert found is not None
    assert found.value == pytest.approx(_partial(own + damage, own - damage, damage))
    assert found.low > 0.5
    assert found.p < 0.01


def _partial(left: np.ndarray, right: np.ndarray, held: np.ndarray) -> float:
    """The textbook formula from three Spearman correlations."""
    a, b, c = (stats.spearmanr(x, y).statistic for x, y in ((left, right), (left, held), (right, held)))
    return float((a - b * c) / np.sqrt((1 - b**2) * (1 - c**2)))


def test_four_layers_prove_nothing() -> None:
    found = rank_correlation([1, 2, 3, 4], [1, 2, 3, 4])
    assert found is not None
    assert (found.low, found.high) == (-1.0, 1.0)
    assert found.p > 0.05


def test_the_null_band_holds_nineteen_of_twenty_shuffles() -> None:
    draw = np.random.default_rng(3)
    left = np.arange(10.0)
    inside = 0
    for number in range(200):
        found = rank_correlation(left, draw.permutation(10), seed=number, shuffles=400)
        assert found is not None
        inside += found.null_low <= found.value <= found.null_high
    assert 0.9 <= inside / 200 <= 0.99


def test_where_there_is_no_correlation() -> None:
    assert rank_correlation([1, 2, 3], [1, 2, 3]) is None
    assert rank_correlation([1, 1, 1, 1], [1, 2, 3, 4]) is None
    with pytest.raises(MeasureError, match="5 and 4 layers"):
        rank_correlation([1, 2, 3, 4, 5], [1, 2, 3, 4])


def test_ranks_that_the_third_explains_altogether_leave_nothing() -> None:
    found = rank_correlation([10, 20, 30, 40, 50, 60], [2, 1, 3, 4, 6, 5], given=[1, 2, 3, 4, 5, 6])
    assert found is not None
    assert (found.value, found.p) == (0.0, 1.0)
    assert found.low < -0.5
    assert found.high > 0.5


@pytest.mark.parametrize("others", [4, 6])
def test_layers_that_cannot_be_paired_are_refused(others: int) -> None:
    with pytest.raises(MeasureError, match=f"5 and {others} layers cannot be paired"):
        rank_correlation(range(5), range(others))
