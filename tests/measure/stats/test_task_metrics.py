import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

from layerwise.errors import MeasureError
from layerwise.measure.stats.task_metrics import (
    METRICS,
    confusion_matrix,
    find_metric,
    guess_score,
    metric_interval,
)

answers = st.integers(2, 4).flatmap(
    lambda classes: st.tuples(
        st.just(classes),
        st.lists(st.tuples(st.integers(0, classes - 1), st.integers(0, classes - 1)), min_size=1, max_size=40),
    )
)
tables = st.lists(st.integers(0, 60), min_size=4, max_size=4).filter(lambda cells: sum(cells) > 0)


def _sklearn_metric(name: str, labels: list[int], predictions: list[int]) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if name == "mcc":
            return float(matthews_corrcoef(labels, predictions))
        if name == "f1":
            return float(f1_score(labels, predictions, zero_division=0.0))
        return float(accuracy_score(labels, predictions))


@given(answers)
def test_metrics_match_scikit_learn(given_answers: tuple[int, list[tuple[int, int]]]) -> None:
    classes, pairs = given_answers
    labels, predictions = [first for first, _ in pairs], [second for _, second in pairs]
    for name in METRICS if classes == 2 else ("mcc", "accuracy"):
        found = float(find_metric(name)(confusion_matrix(labels, predictions, classes)))
        assert found == pytest.approx(_sklearn_metric(name, labels, predictions), abs=1e-12)


@given(tables, st.sampled_from(sorted(METRICS)))
def test_interval_contains_the_value_and_has_a_width(cells: list[int], name: str) -> None:
    counts = np.reshape(cells, (2, 2))
    low, high = metric_interval(name, counts)
    assert low <= float(find_metric(name)(counts)) <= high
    assert high - low > 1e-4
    assert metric_interval(name, counts) == (low, high)


@pytest.mark.parametrize("name", sorted(METRICS))
def test_interval_of_perfect_scores_extends_below_one(name: str) -> None:
    low, high = metric_interval(name, [[10, 0], [0, 10]])
    assert 0.6 < low < 0.95
    assert high == 1.0


def test_guess_score_is_that_of_a_constant_prediction() -> None:
    counts = [[20, 10], [30, 40]]
    assert guess_score("accuracy", counts, 1) == 0.7
    assert guess_score("accuracy", counts, 0) == 0.3
    assert guess_score("f1", counts, 1) == pytest.approx(2 * 0.7 / 1.7)
    assert guess_score("f1", counts, 0) == 0.0
    assert guess_score("mcc", counts, 1) == 0.0


def test_unknown_metric_suggests_the_nearest() -> None:
    with pytest.raises(MeasureError, match="did you mean mcc"):
        find_metric("mmc")
