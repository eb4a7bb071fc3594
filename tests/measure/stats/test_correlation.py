import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from layerwise.errors import MeasureError
from layerwise.measure.stats.correlation import (
    find_correlation,
    fisher_interval,
    pearson,
    rank_correlation,
    spearman,
)


@given(st.integers(0, 10_000), st.integers(5, 40))
def test_correlations_match_scipy(seed: int, count: int) -> None:
    random = np.random.default_rng(seed)
    scores = random.integers(0, 6, count)
    answers = scores + random.normal(0, 2, count)
    if np.ptp(scores) > 0:
        assert pearson(scores, answers) == pytest.approx(stats.pearsonr(scores, answers).statistic)
        assert spearman(scores, answers) == pytest.approx(stats.spearmanr(scores, answers).statistic)
        low, high = stats.pearsonr(scores, answers).confidence_interval()
        assert fisher_interval(pearson(scores, answers), count - 3) == pytest.approx((low, high))


def test_constants_have_no_correlation() -> None:
    assert pearson([0.1] * 3, [1, 2, 3]) == spearman([1, 2, 3], [0.7] * 3) == 0.0


def test_interval_contains_its_value_and_is_wider_for_ranks_and_few_pairs() -> None:
    widths = {}
    for is_rank in (False, True):
        for value in (-1.0, 0.0, 0.9, 1.0):
            low, high = fisher_interval(value, 47, is_rank=is_rank)
            assert -1 <= low <= value <= high <= 1
            widths[is_rank, value] = high - low
    assert widths[True, 0.9] > widths[False, 0.9]
    assert fisher_interval(0.5, 0) == (-1.0, 1.0)


def test_unknown_metric_suggests_the_nearest() -> None:
    with pytest.raises(MeasureError, match="did you mean pearson"):
        find_correlation("pearsn")


def test_partial_correlation_matches_its_formula() -> None:
    draw = np.random.default_rng(2)
    damage, own = draw.normal(size=30), draw.normal(size=30)
    found = rank_correlation(own + damage, own - damage, given=damage)
    assert found.value == pytest.approx(_partial(own + damage, own - damage, damage))
    assert found.low > 0.5
    assert found.p < 0.01


def _partial(left: np.ndarray, right: np.ndarray, third: np.ndarray) -> float:
    a, b, c = (stats.spearmanr(x, y).statistic for x, y in ((left, right), (left, third), (right, third)))
    return float((a - b * c) / np.sqrt((1 - b**2) * (1 - c**2)))


@pytest.mark.parametrize("layers", [4, 5, 6, 7])
def test_p_counts_orders_that_agree_equally(layers: int) -> None:
    ranks = np.arange(layers)
    for order in itertools.islice(itertools.permutations(ranks.tolist()), 0, None, layers):
        found = rank_correlation(ranks, order, shuffles=500)
        centered, right = 2 * ranks - (layers - 1), 2 * np.array(order) - (layers - 1)
        null = np.random.default_rng(0).permuted(np.tile(right, (500, 1)), axis=1) @ centered
        assert found.p == (1 + (np.abs(null) >= abs(right @ centered)).sum()) / 501


def test_no_correlation_of_three_layers_or_constants() -> None:
    assert rank_correlation([1, 2, 3], [1, 2, 3]) is None
    assert rank_correlation([1, 1, 1, 1], [1, 2, 3, 4]) is None


def test_null_matches_all_orders() -> None:
    left, right = np.arange(5.0), np.array([1.0, 0.0, 2.0, 3.0, 4.0])
    every = np.array([stats.spearmanr(left, each).statistic for each in itertools.permutations(range(5))])
    found = rank_correlation(left, right, shuffles=20_000)
    assert found.p == pytest.approx((np.abs(every) >= 0.9 - 1e-9).mean(), abs=0.01)
    assert (found.null_low, found.null_high) == pytest.approx(tuple(np.quantile(every, [0.025, 0.975])), abs=0.101)


def test_partial_correlation_is_zero_if_the_third_explains_all_ranks() -> None:
    found = rank_correlation([10, 20, 30, 40, 50, 60], [2, 1, 3, 4, 6, 5], given=[1, 2, 3, 4, 5, 6])
    assert (found.value, found.p) == (0.0, 1.0)
    assert found.low < -0.5
    assert found.high > 0.5
