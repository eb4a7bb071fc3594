"""Rank correlations: signs, ties, partial correlation, and how little a few layers show."""

import itertools

import numpy as np
import pytest
from scipy import stats

from layerwise.measure.stats.ranks import rank_correlation


def test_it_is_spearman() -> None:
    draw = np.random.default_rng(0)
    left, right = draw.normal(size=12), draw.normal(size=12)
    right[3] = right[4]
    found = rank_correlation(left, right)
    assert found.value == pytest.approx(stats.spearmanr(left, right).statistic)
    assert found.low < found.value < found.high


def test_what_the_third_explains_is_gone() -> None:
    draw = np.random.default_rng(1)
    damage = np.arange(30.0)
    left, right = damage + draw.normal(size=30), damage + draw.normal(size=30)
    raw, given = rank_correlation(left, right), rank_correlation(left, right, given=damage)
    assert raw.low > 0.8
    assert given.low < 0 < given.high


def test_what_the_third_does_not_explain_is_left() -> None:
    draw = np.random.default_rng(2)
    damage, own = draw.normal(size=30), draw.normal(size=30)
    found = rank_correlation(own + damage, own - damage, given=damage)
    assert found.value == pytest.approx(_partial(own + damage, own - damage, damage))
    assert found.low > 0.5
    assert found.p < 0.01


def _partial(left: np.ndarray, right: np.ndarray, held: np.ndarray) -> float:
    a, b, c = (stats.spearmanr(x, y).statistic for x, y in ((left, right), (left, held), (right, held)))
    return float((a - b * c) / np.sqrt((1 - b**2) * (1 - c**2)))


def test_four_layers_prove_nothing() -> None:
    found = rank_correlation([1, 2, 3, 4], [1, 2, 3, 4])
    assert (found.low, found.high) == (-1.0, 1.0)
    assert found.p > 0.05


@pytest.mark.parametrize("layers", [4, 5, 6, 7])
def test_orders_that_agree_as_strongly_count_for_chance(layers: int) -> None:
    """Products of whole numbers count the same orders, so rounding does not decide."""
    ranks = np.arange(layers)
    for order in itertools.islice(itertools.permutations(ranks.tolist()), 0, None, layers):
        found = rank_correlation(ranks, order, shuffles=500)
        centred, right = 2 * ranks - (layers - 1), 2 * np.array(order) - (layers - 1)
        null = np.random.default_rng(0).permuted(np.tile(right, (500, 1)), axis=1) @ centred
        assert found.p == (1 + (np.abs(null) >= abs(right @ centred)).sum()) / 501


def test_where_there_is_no_correlation() -> None:
    assert rank_correlation([1, 2, 3], [1, 2, 3]) is None
    assert rank_correlation([1, 1, 1, 1], [1, 2, 3, 4]) is None


def test_the_null_is_that_of_all_orders() -> None:
    left, right = np.arange(5.0), np.array([1.0, 0.0, 2.0, 3.0, 4.0])
    every = np.array([stats.spearmanr(left, each).statistic for each in itertools.permutations(range(5))])
    found = rank_correlation(left, right, shuffles=20_000)
    assert found.p == pytest.approx((np.abs(every) >= 0.9 - 1e-9).mean(), abs=0.01)
    assert (found.null_low, found.null_high) == pytest.approx(tuple(np.quantile(every, [0.025, 0.975])), abs=0.101)


def test_ranks_that_the_third_explains_altogether_leave_nothing() -> None:
    found = rank_correlation([10, 20, 30, 40, 50, 60], [2, 1, 3, 4, 6, 5], given=[1, 2, 3, 4, 5, 6])
    assert (found.value, found.p) == (0.0, 1.0)
    assert found.low < -0.5
    assert found.high > 0.5
