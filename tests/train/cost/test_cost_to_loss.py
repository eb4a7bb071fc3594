"""What a loss costs: exact where it was trained, monotone, censored where it is not reached; planted savings found."""

from math import exp, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import sem, t

from layerwise.errors import MeasureError
from layerwise.results.vocabulary import SAVING, SAVING_AT_LEAST, SAVING_AT_MOST
from layerwise.train.cost.frontier import CostPoint, cost_to_loss, descending, saving
from report.claims.heterogeneity.planted_frontiers import frontiers


def points(*pairs: tuple[float, float]) -> list[CostPoint]:
    return [CostPoint(loss, {"flops": cost}) for cost, loss in pairs]


@given(
    costs=st.lists(st.floats(1.0, 1e9), min_size=2, max_size=6, unique_by=lambda cost: round(log(cost), 3)).map(sorted),
    steps=st.lists(st.floats(0.01, 1.0), min_size=6, max_size=6),
)
def test_a_loss_that_was_reached_costs_what_it_cost(costs: list[float], steps: list[float]) -> None:
    losses = [5.0 - sum(steps[:number]) for number in range(len(costs))]
    found = [cost_to_loss(points(*zip(costs, losses, strict=True)), loss, "flops") for loss in losses]
    assert [each.cost for each in found] == pytest.approx(costs)
    assert all(each.censored == "exact" for each in found)


@given(losses=st.lists(st.floats(0.0, 9.0), min_size=1, max_size=8))
def test_losses_are_made_monotone_and_keep_their_mean(losses: list[float]) -> None:
    found = descending(losses)
    assert found == sorted(found, reverse=True)
    assert sum(found) == pytest.approx(sum(losses))
    assert descending(found) == pytest.approx(found)


def test_the_order_of_the_points_does_not_matter() -> None:
    given_points = points((1.0, 4.0), (2.0, 3.0), (4.0, 2.0))
    assert cost_to_loss(given_points[::-1], 2.5, "flops") == cost_to_loss(given_points, 2.5, "flops")
    assert cost_to_loss(given_points, 2.5, "flops").cost == pytest.approx(exp((log(2) + log(4)) / 2))


def test_a_loss_beyond_the_ends_is_censored_and_not_guessed() -> None:
    given_points = points((1.0, 4.0), (2.0, 3.0))
    assert cost_to_loss(given_points, 2.9, "flops").censored == "never"
    assert cost_to_loss(given_points, 4.1, "flops").censored == "sooner"
    with pytest.raises(MeasureError, match="0 costs above 0 were given"):
        cost_to_loss([], 1.0, "flops")


def test_one_seed_that_never_came_down_leaves_an_upper_bound_alone() -> None:
    reference = {seed: CostPoint(3.0, {"flops": 2.0}) for seed in range(3)}
    arm = {0: points((1.0, 4.0), (1.5, 2.9)), 1: points((1.0, 4.0), (1.5, 2.8)), 2: points((1.0, 4.0), (1.5, 3.2))}
    found = saving(arm, reference, "flops")
    assert (found.metric, found.never, found.seeds) == (SAVING_AT_MOST, 1, 3)
    exact = saving({seed: arm[seed] for seed in (0, 1)}, reference, "flops")
    assert exact.metric == SAVING
    assert found.value > 0.25, "the third seed spent three quarters of what uniform did, and needed more"


def test_one_that_had_it_at_once_leaves_a_lower_bound_and_both_leave_nothing() -> None:
    reference = {seed: CostPoint(3.0, {"flops": 2.0}) for seed in range(2)}
    soon, late = points((1.0, 2.5), (1.5, 2.0)), points((1.0, 4.0), (1.5, 3.5))
    found = saving({0: soon, 1: points((1.0, 3.0), (1.5, 2.0))}, reference, "flops")
    assert (found.metric, found.sooner) == (SAVING_AT_LEAST, 1)
    assert found.value == pytest.approx(0.5)
    assert saving({0: soon, 1: late}, reference, "flops") is None
    assert saving({7: soon}, reference, "flops") is None


def test_of_one_seed_there_is_no_interval() -> None:
    found = saving({0: points((1.0, 4.0), (2.0, 2.0))}, {0: CostPoint(3.0, {"flops": 4.0})}, "flops")
    assert (found.low, found.high) == (None, None)
    assert found.value == pytest.approx(1 - 2**0.5 / 4)


def test_the_interval_is_students_over_seeds_of_the_logarithms() -> None:
    spent, whole = (70.0, 80.0, 95.0), (100.0, 90.0, 120.0)
    arm = {seed: points((1.0, 4.0), (cost, 3.0), (200.0, 2.0)) for seed, cost in enumerate(spent)}
    estimate = saving(arm, {seed: CostPoint(3.0, {"flops": cost}) for seed, cost in enumerate(whole)}, "flops")
    logs = np.log(np.array(spent) / np.array(whole))
    low, high = t.interval(0.95, 2, loc=logs.mean(), scale=sem(logs))
    expected = (SAVING, *(1 - exp(each) for each in (logs.mean(), high, low)))
    assert (estimate.metric, estimate.value, estimate.low, estimate.high) == pytest.approx(expected)


@pytest.mark.parametrize("truth", [-0.1, 0.0, 0.13, 0.4, 0.54])
def test_a_planted_saving_is_read_off_a_curve_within_three_points(truth: float) -> None:
    arm, uniform = frontiers(truth, seeds=3, noise=0.0, draw=0)
    exact = saving(arm, {seed: lengths[-1] for seed, lengths in uniform.items()}, "flops")
    assert exact.value == pytest.approx(truth, abs=0.03)


def test_a_cost_of_nothing_beside_others_is_refused() -> None:
    with pytest.raises(MeasureError, match="costs above 0"):
        cost_to_loss(points((0.0, 3.0), (4.0, 2.0)), 2.5, "flops")
