"""Scores from the confusion matrix: equal to scikit-learn's, honest at the edges, and chance as computed by hand."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

from layerwise.data.suites.classification import METRICS as NAMED
from layerwise.errors import MeasureError
from layerwise.measure.stats.task_metrics import METRICS, confusion_matrix, guessed, interval, metric_of

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
        found = float(metric_of(name)(confusion_matrix(labels, predictions, classes)))
        assert found == pytest.approx(_known(name, labels, predictions), abs=1e-12)


def test_by_hand() -> None:
    counts = confusion_matrix([1] * 10 + [0] * 10, [1] * 8 + [0] * 2 + [1] * 4 + [0] * 6, 2)
    assert counts.tolist() == [[6, 4], [2, 8]]
    assert float(METRICS["accuracy"](counts)) == 14 / 20
    assert float(METRICS["f1"](counts)) == 16 / 22
    assert float(METRICS["mcc"](counts)) == pytest.approx((8 * 6 - 4 * 2) / np.sqrt(12 * 10 * 10 * 8))


def test_the_names_are_those_a_task_may_have() -> None:
    assert set(METRICS) == set(NAMED)
    with pytest.raises(MeasureError, match="did you mean mcc"):
        metric_of("mmc")


@given(tables, st.sampled_from(sorted(METRICS)))
def test_an_interval_holds_the_value_and_has_a_width_everywhere(cells: list[int], name: str) -> None:
    counts = np.reshape(cells, (2, 2))
    low, high = interval(name, counts)
    assert low <= float(metric_of(name)(counts)) <= high
    assert high - low > 1e-4
    assert interval(name, counts) == (low, high)


@pytest.mark.parametrize("name", sorted(METRICS))
def test_twenty_right_answers_do_not_prove_that_all_are(name: str) -> None:
    low, high = interval(name, [[10, 0], [0, 10]])
    assert 0.6 < low < 0.95
    assert high == 1.0


@pytest.mark.parametrize("name", ["mcc", "f1"])
def test_an_interval_covers_the_truth_as_often_as_it_says(name: str) -> None:
    chances = np.array([0.35, 0.15, 0.2, 0.3])
    truth = float(metric_of(name)(chances.reshape(2, 2)))
    draws = np.random.default_rng(0).multinomial(150, chances, size=300).reshape(-1, 2, 2)
    covered = sum(low <= truth <= high for low, high in (interval(name, counts) for counts in draws))
    assert 0.91 < covered / len(draws) < 0.985


def test_chance_is_what_always_saying_one_label_scores() -> None:
    counts = [[20, 10], [30, 40]]
    assert guessed("accuracy", counts, 1) == 0.7
    assert guessed("accuracy", counts, 0) == 0.3
    assert guessed("f1", counts, 1) == pytest.approx(2 * 0.7 / 1.7)
    assert guessed("f1", counts, 0) == 0.0
    assert guessed("mcc", counts, 1) == 0.0


def test_an_interval_has_95_percent_and_the_first_seed_unless_told_otherwise() -> None:
    counts = [[30, 10], [10, 30]]
    assert interval("mcc", counts) == interval("mcc", counts, seed=0, level=0.95)
    assert interval("mcc", counts) != interval("mcc", counts, seed=1)
    (low, high), (lower, higher) = (interval("mcc", counts, level=level) for level in (0.5, 0.99))
    assert lower < low < 0.5 < high < higher
    assert low + high == pytest.approx(1.0, abs=0.05)
    assert lower + higher == pytest.approx(1.0, abs=0.15)
