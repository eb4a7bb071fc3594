"""Deadlines: quantiles of the last hops by their work."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerwise.swarm.deadlines import ENOUGH, WINDOW, Latencies


def recorded(seconds: list[float], work: int = 1) -> Latencies:
    latencies = Latencies(first=10.0, floor=0.001)
    for each in seconds:
        latencies.record(each, work)
    return latencies


@given(st.lists(st.floats(0.001, 100), min_size=ENOUGH, max_size=WINDOW + 60))
def test_quantiles_are_those_of_the_last_hops(seconds: list[float]) -> None:
    latencies, last = recorded(seconds), seconds[-WINDOW:]
    for share in (0.5, 0.95, 0.99):
        assert latencies.quantile(share) == np.quantile(last, share, method="inverted_cdf")
    assert latencies.deadline() == min(30.0, max(0.001, 2 * np.quantile(last, 0.99, method="inverted_cdf")))


def test_before_enough_hops_the_deadline_is_the_first_one() -> None:
    latencies = recorded([1.0] * (ENOUGH - 1))
    assert latencies.deadline(1) == pytest.approx(10.02)
    assert latencies.deadline(100) == pytest.approx(12.0)
    latencies.record(1.0)
    assert latencies.deadline() == 2.0
    assert Latencies().quantile(0.5) is None


def test_the_floor_holds_and_what_lies_before_the_window_is_forgotten() -> None:
    assert recorded([1e-5] * ENOUGH).deadline() == 0.001
    assert recorded([9.0] * WINDOW + [0.1] * WINDOW).deadline() == 0.2


def test_a_long_prompt_has_its_own_deadline() -> None:
    latencies = recorded([0.1] * ENOUGH)
    assert latencies.deadline(64) == pytest.approx(2 * 6.4), "in proportion to the work, while no such hop is known"
    for _ in range(ENOUGH):
        latencies.record(3.0, work=64)
    assert latencies.deadline(64) == 6.0
    assert latencies.deadline(1) == 0.2, "a prompt does not slow the deadline of a token"
    assert latencies.deadline(16) == pytest.approx(2 * 1.6), "the least of what the classes around it say"
    assert latencies.deadline(50) == 6.0
    assert recorded([3.0] * ENOUGH, work=64).deadline(1) == 6.0, "less work takes no longer"


def test_a_node_that_has_become_slow_is_given_more_time() -> None:
    latencies = recorded([0.1] * WINDOW)
    late = 0
    for _ in range(20):
        late += latencies.deadline() < 1.0
        latencies.record(1.0)
    assert late == 3
    assert latencies.deadline() == 2.0


def test_no_answer_makes_a_deadline_longer_than_thirty_seconds_or_ten_medians() -> None:
    silent, others = recorded([0.1] * WINDOW + [3600.0] * 3), recorded([0.1] * WINDOW)
    assert silent.deadline() == 30.0
    assert silent.deadline(1, others) == 1.0, "ten times the median of the others"
    assert recorded([0.01] * ENOUGH).deadline(1, others) == 0.02
    assert Latencies(first=100.0).deadline(1, others) == pytest.approx(4 * 2 * 0.1), "of a node that nobody knows"
    assert Latencies(first=10.0, floor=60.0).deadline(1, others) == 60.0, "what was asked for as the least holds"


def test_patience_grows_with_the_work_and_with_nothing_else() -> None:
    silent = recorded([0.1] * WINDOW + [3600.0] * 3)
    assert silent.patience() == Latencies().patience() == pytest.approx(30.02)
    assert silent.patience(1000) == pytest.approx(50.0)
    assert Latencies(first=10.0, floor=60.0).patience() == pytest.approx(180.02)


def test_few_honest_hops_are_late() -> None:
    chance = random.Random(0)
    latencies, late = recorded([chance.lognormvariate(0, 0.5) for _ in range(WINDOW)]), 0
    for _ in range(5000):
        seconds = chance.lognormvariate(0, 0.5)
        late += seconds > latencies.deadline()
        latencies.record(seconds)
    assert late <= 5
