"""Task metrics compared with scikit-learn and scipy, intervals at the edges, and chance by hand."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

from layerwise.errors import MeasureError
from layerwise.measure.stats.task_metrics import (
    CORRELATIONS,
    METRICS,
    confusion_matrix,
    correlation_interval,
    find_correlation,
    find_metric,
    guess_score,
    metric_interval,
    pearson,
    spearman,
)

answers = st.integers(2, 4).flatmap(
    lambda classes: st.tuples(
        st.just(classes),
        st.lists(st.tuples(st.integers(0, classes - 1), st.integers(0, classes - 1)), min_size=1, max_size=40),
    )
)
tables = st.lists(st.integers(0, 60), min_size=4, max_size=4).filter(lambda cells: sum(cells) > 0)


def _known(name: str, labels: list[int], predictions: list[int]) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if name == "mcc":
            return float(matthews_corrcoef(labels, predictions))
        if name == "f1":
            return float(f1_score(labels, predictions, zero_division=0.0))
        return float(accuracy_score(labels, predictions))


@given(answers)
def test_every_metric_is_scikit_learns(given_answers: tuple[int, list[tuple[int, int]]]) -> None:
    classes, pairs = given_answers
    labels, predictions = [first for first, _ in pairs], [second for _, second in pairs]
    for name in METRICS if classes == 2 else ("mcc", "accuracy"):
        found = float(find_metric(name)(confusion_matrix(labels, predictions, classes)))
        assert found == pytest.approx(_known(name, labels, predictions), abs=1e-12)


@given(tables, st.sampled_from(sorted(METRICS)))
def test_an_interval_holds_the_value_and_has_a_width_everywhere(cells: list[int], name: str) -> None:
    counts = np.reshape(cells, (2, 2))
    low, high = metric_interval(name, counts)
    assert low <= float(find_metric(name)(counts)) <= high
    assert high - low > 1e-4
    assert metric_interval(name, counts) == (low, high)


@pytest.mark.parametrize("name", sorted(METRICS))
def test_twenty_right_answers_do_not_prove_that_all_are(name: str) -> None:
    low, high = metric_interval(name, [[10, 0], [0, 10]])
    assert 0.6 < low < 0.95
    assert high == 1.0


def test_chance_is_what_always_saying_one_label_scores() -> None:
    counts = [[20, 10], [30, 40]]
    assert guess_score("accuracy", counts, 1) == 0.7
    assert guess_score("accuracy", counts, 0) == 0.3
    assert guess_score("f1", counts, 1) == pytest.approx(2 * 0.7 / 1.7)
    assert guess_score("f1", counts, 0) == 0.0
    assert guess_score("mcc", counts, 1) == 0.0


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


@pytest.mark.parametrize(
    ("of", "wrong", "near"), [(find_metric, "mmc", "mcc"), (find_correlation, "pearsn", "pearson")]
)
def test_an_unknown_metric_is_refused(of, wrong, near) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(MeasureError, match=f"did you mean {near}"):
        of(wrong)
