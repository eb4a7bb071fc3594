"""A partition has every plan once, costs the sum of its graphs, and is the best cut of its order."""

from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laws.plans import plans
from layerwise.plan import Plan
from layerwise.plan.families import family
from layerwise.stack.executors.graph import build
from layerwise.stack.executors.partition import Partition, cost, depth_first, runs

SETS = st.lists(plans(depth=6, most_steps=20), min_size=1, max_size=9, unique=True)
HEADS = st.sampled_from([0.0, 1.0, 7.5])


def partition(plans: list[Plan], count: int, head: float = 0.0) -> Partition:
    return Partition(cost(plans, head), tuple(cost(run, head) for run in runs(depth_first(plans), count, head)))


@given(SETS, st.integers(1, 12), HEADS)
def test_every_plan_is_in_one_run_and_no_run_is_empty(given: list[Plan], count: int, head: float) -> None:
    order = depth_first(given)
    parts = runs(order, count, head)
    assert [plan for part in parts for plan in part] == order
    assert all(parts)
    assert len(parts) <= count


@given(SETS, HEADS)
def test_the_cost_is_that_of_the_graph(given: list[Plan], head: float) -> None:
    graph = build(given)
    assert cost(given, head) == graph.evaluations + head * graph.heads


@given(SETS, st.integers(1, 4), HEADS)
def test_no_cut_of_the_order_has_a_cheaper_dearest_run(given: list[Plan], count: int, head: float) -> None:
    order = depth_first(given)
    dearest = max(cost(part, head) for part in runs(order, count, head))
    for cuts in combinations(range(1, len(order)), min(count, len(order)) - 1):
        other = [order[start:end] for start, end in pairwise([0, *cuts, len(order)])]
        assert dearest <= max(cost(part, head) for part in other) + 0.5


@given(SETS, st.integers(1, 5), HEADS)
def test_what_is_computed_twice_is_what_the_parts_cost_beyond_the_whole(
    given: list[Plan], count: int, head: float
) -> None:
    parted = partition(given, count, head)
    assert parted.duplicates >= -1e-12
    assert 1 - 1e-12 <= parted.bound(count) <= count + 1e-12
    assert parted.bound(1) == pytest.approx(1 / (1 + parted.duplicates))


@given(st.lists(plans(depth=6, most_steps=20), min_size=2, max_size=9, unique=True))
def test_plans_that_begin_alike_stand_side_by_side(given: list[Plan]) -> None:
    first = [plan.steps()[0] for plan in depth_first(given)]
    changes = sum(one != two for one, two in pairwise(first))
    assert changes == len(set(first)) - 1


@pytest.mark.parametrize(("workers", "duplicates", "bound"), [(2, 0.017, 1.94), (4, 0.058, 3.63), (8, 0.142, 5.96)])
def test_leave_one_out_of_thirty_layers_is_cheap_to_divide(workers: int, duplicates: float, bound: float) -> None:
    parted = partition([Plan.identity(30), *(each.plan for each in family("leave_one_out", 30))], workers)
    assert parted.whole == 465  # 464, and the last layer of the trained order
    assert parted.duplicates == pytest.approx(duplicates, abs=5e-4)
    assert parted.bound(workers) == pytest.approx(bound, abs=5e-3)


def test_workers_take_the_next_part_when_they_are_free() -> None:
    assert Partition(9.0, (4.0, 3.0, 2.0)).bound(2) == 1.8
    assert Partition(9.0, (9.0,)).bound(4) == 1.0


def test_no_run_at_all_is_refused() -> None:
    with pytest.raises(ValueError, match="0 runs were asked for"):
        runs([Plan.identity(2)], 0)
    assert runs([], 3) == ()
