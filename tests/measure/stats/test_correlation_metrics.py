"""Correlations of a regression: those of scipy, with Fisher's intervals, and nothing where nothing varies."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from layerwise.data.suites.classification import CORRELATIONS
from layerwise.errors import MeasureError
from layerwise.measure.stats.task_metrics import METRICS, correlation_interval, correlation_of, pearson, spearman


@given(st.integers(0, 10_000), st.integers(5, 40))
def test_the_correlations_are_scipy_s(seed: int, count: int) -> None:
    random = np.random.default_rng(seed)
    scores = random.integers(0, 6, count)
    answers = scores + random.normal(0, 2, count)
    if np.ptp(scores) > 0:
        assert pearson(scores, answers) == pytest.approx(stats.pearsonr(scores, answers).statistic)
        assert spearman(scores, answers) == pytest.approx(stats.spearmanr(scores, answers).statistic)
        low, high = stats.pearsonr(scores, answers).confidence_interval()
        assert correlation_interval("pearson", pearson(scores, answers), count) == pytest.approx((low, high))


def test_what_never_varies_has_no_correlation() -> None:
    assert pearson([0.1] * 3, [1, 2, 3]) == spearman([1, 2, 3], [0.7] * 3) == 0.0


def test_the_interval_holds_its_value_and_is_wider_for_ranks_and_few_examples() -> None:
    widths = {}
    for name in CORRELATIONS:
        for value in (-1.0, 0.0, 0.9, 1.0):
            low, high = correlation_interval(name, value, 50)
            assert -1 <= low <= value <= high <= 1
            widths[name, value] = high - low
    assert widths["spearman", 0.9] > widths["pearson", 0.9]
    assert correlation_interval("pearson", 0.5, 3) == (-1.0, 1.0)


def test_the_metrics_of_tasks_are_those_that_can_be_computed() -> None:
    assert set(METRICS) == set(CORRELATIONS)
    with pytest.raises(MeasureError, match="did you mean pearson"):
        correlation_of("pearsn")
