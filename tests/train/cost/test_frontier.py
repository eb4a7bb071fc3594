"""The frontier: exact where it was trained, a line between, silent beyond; and planted effects, found as planted."""

from collections.abc import Mapping, Sequence
from math import exp, log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerwise.errors import MeasureError
from layerwise.train.cost import frontier
from layerwise.train.cost.frontier import COSTS, CostPoint, Frontier, against, equal_rows, frontier_rows

LENGTHS = (0.8, 1.0, 1.25, 1.5, 2.0)
INTERCEPTS = {0: 5.0, 1: 5.3, 2: 4.9}
"""Seeds differ by far more than any planted effect."""


def law(seed: int, length: float) -> float:
    return INTERCEPTS[seed] - 0.7 * log(length)


def point(seed: int, length: float, *, loss: float | None = None, seconds: float | None = None) -> CostPoint:
    taken = length if seconds is None else seconds
    costs = {"flops": 1e9 * length, "seconds": 60 * taken}
    return CostPoint(law(seed, length) if loss is None else loss, costs)


def reference() -> Mapping[int, Sequence[CostPoint]]:
    return {seed: [point(seed, length) for length in LENGTHS] for seed in INTERCEPTS}


@given(
    costs=st.lists(st.floats(1.0, 1e12), min_size=2, max_size=6, unique_by=lambda cost: round(log(cost), 3)).map(
        sorted
    ),
    losses=st.lists(st.floats(0.0, 10.0), min_size=6, max_size=6),
    share=st.floats(0.0, 1.0),
)
def test_it_is_exact_at_its_trainings_and_between_its_neighbours(
    costs: list[float], losses: list[float], share: float
) -> None:
    line = Frontier(tuple(costs), tuple(losses[: len(costs)]))
    assert [line.at(cost) for cost in costs] == pytest.approx(line.losses, abs=1e-9)
    between = exp(log(costs[0]) + share * (log(costs[1]) - log(costs[0])))
    low, high = sorted(line.losses[:2])
    assert low - 1e-9 <= line.at(between) <= high + 1e-9


@given(slope=st.floats(-2.0, 2.0), cost=st.floats(0.795, 2.015))
def test_a_line_in_the_logarithm_is_read_as_it_is(slope: float, cost: float) -> None:
    line = Frontier(LENGTHS, tuple(4.0 + slope * log(length) for length in LENGTHS))
    assert line.at(cost) == pytest.approx(4.0 + slope * log(cost), abs=1e-9)


def test_points_may_come_in_any_order_and_the_first_of_two_counts() -> None:
    line = Frontier.of([point(0, 2.0), point(0, 0.8), point(0, 2.0, loss=0.0)], "flops")
    assert line == Frontier((0.8e9, 2e9), (law(0, 0.8), law(0, 2.0)))


@pytest.mark.parametrize("cost", [0.78, 2.03])
def test_beyond_its_ends_it_says_nothing(cost: float) -> None:
    line = Frontier(LENGTHS, tuple(law(0, length) for length in LENGTHS))
    with pytest.raises(MeasureError, match="would be a guess: train it to that length"):
        line.at(cost)


@pytest.mark.parametrize("costs", [(1.0,), (2.0, 1.0), (1.0, 1.0), (0.0, 1.0)])
def test_what_is_no_line_is_refused(costs: tuple[float, ...]) -> None:
    with pytest.raises(MeasureError, match="two or more different costs above 0"):
        Frontier(costs, tuple(1.0 for _ in costs))


@pytest.mark.parametrize("effect", [-0.2, 0.0, 0.05])
def test_a_planted_effect_is_found_at_every_cost(effect: float) -> None:
    lengths = {"flops": 1.0, "seconds": 0.9}
    jitter = {0: 0.001, 1: -0.001, 2: 0.0}
    for cost, length in lengths.items():
        arm = {
            seed: CostPoint(law(seed, length) + effect + jitter[seed], {"flops": 1e9, "seconds": 60 * 0.9})
            for seed in INTERCEPTS
        }
        found = against(arm, reference(), cost)
        assert found.value == pytest.approx(effect, abs=1e-9)
        assert found.low < effect < found.high
        assert found.high - found.low < 0.01, "seeds are paired: what they differ by cancels out"


def test_the_cost_that_is_not_equal_is_not_forgiven() -> None:
    arm = {seed: CostPoint(law(seed, 1.4), {"flops": 1e9, "seconds": 60 * 1.4}) for seed in INTERCEPTS}
    by = {cost: against(arm, reference(), cost) for cost in COSTS}
    assert by["seconds"].value == pytest.approx(0.0, abs=1e-9)
    assert by["flops"].value == pytest.approx(-0.7 * log(1.4), abs=1e-9)


def test_rows_say_who_was_compared_with_whom_at_what() -> None:
    arms = {
        "published": {seed: point(seed, 1.0, loss=law(seed, 1.0) + 0.3 + 0.01 * seed) for seed in INTERCEPTS},
        "ramp": {seed: point(seed, 1.0, loss=law(seed, 1.0) - 0.01 * (seed - 1)) for seed in INTERCEPTS},
    }
    rows, notes = frontier_rows(arms, reference(), "uniform")
    assert not notes
    assert {(row.measure, row.arm, row.against, row.condition, row.metric) for row in rows} == {
        ("growth", arm, "uniform", cost, metric) for arm in arms for cost in COSTS for metric in ("difference", "at")
    }
    flops = {(row.arm, row.metric): row for row in rows if row.condition == "flops"}
    assert flops["published", "at"].value == 1e9
    worse, same = flops["published", "difference"], flops["ramp", "difference"]
    assert worse.value == pytest.approx(0.31)
    assert worse.p_adjusted == pytest.approx(2 * worse.p), "Holm over the two arms"
    assert worse.p_adjusted < 0.05
    assert worse.mde is not None
    assert same.p_adjusted > 0.5


def test_an_arm_that_spent_more_than_was_trained_is_noted_and_not_guessed() -> None:
    arms = {"slow": {seed: point(seed, 1.0, seconds=2.5 if seed == 1 else 1.0) for seed in INTERCEPTS}}
    rows, notes = frontier_rows(arms, reference(), "uniform")
    assert {row.condition for row in rows if row.metric == "difference"} == {"flops"}
    assert {row.condition for row in rows if row.metric == "at"} == set(COSTS)
    assert notes == [frontier._unread("slow", "uniform", "seconds")]


def test_without_a_frontier_only_what_came_out_equal_is_compared() -> None:
    costs = {"flops": 1.009e9, "seconds": 60 * 1.04}
    arms = {"stacking": {seed: CostPoint(law(seed, 1.0) - 0.1, costs) for seed in INTERCEPTS}}
    plain = {seed: point(seed, 1.0) for seed in INTERCEPTS}
    rows = equal_rows(arms, plain, "uniform")
    assert {(row.condition, row.metric) for row in rows} == {
        (cost, metric) for cost in ("flops", "seconds") for metric in ("difference", "at")
    }
    assert all(row.value == pytest.approx(-0.1) for row in rows if row.metric == "difference")
    one_off = {**arms["stacking"], 1: CostPoint(4.0, {**costs, "flops": 1.02e9})}
    assert {row.condition for row in equal_rows({"stacking": one_off}, plain, "uniform")} == {"seconds"}
    assert equal_rows({"stacking": {7: plain[0]}}, plain, "uniform") == []


def test_one_seed_gives_a_difference_without_an_interval() -> None:
    found = against({0: point(0, 1.0, loss=law(0, 1.0) + 0.25)}, reference(), "flops")
    assert (found.value, found.low, found.p, found.seeds) == (pytest.approx(0.25), None, None, 1)
