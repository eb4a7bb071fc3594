"""Every node is computed once its layer is there, and layers are read as few times as the plans allow."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layerwise.plan import Plan, families
from layerwise.stack.executors.graph import Apply, Graph, build, inputs
from layerwise.stack.streaming.readings import ReadingSchedule, reading_schedule
from stack.random_plans import plans
from tier import by_tier

DEPTH = 6


def check_valid(found: ReadingSchedule, graphs: list[Graph], most: int) -> None:
    resident: list[int] = []
    done: list[list[int]] = [[] for _ in graphs]
    for reading in found.readings:
        if reading.released is not None:
            resident.remove(reading.released)
        resident.append(reading.layer)
        assert len(resident) == len(set(resident)) <= max(1, most - 1)
        for graph, nodes, before in zip(graphs, reading.nodes, done, strict=True):
            for index in nodes:
                node = graph.nodes[index]
                assert set(inputs(node)) <= set(before)
                assert not isinstance(node, Apply) or node.layer in resident
                before.append(index)
    assert [sorted(each) for each in done] == [list(range(len(graph.nodes))) for graph in graphs]
    assert found.bound <= len(found.readings)


@given(st.lists(plans(DEPTH), min_size=1, max_size=4), st.lists(plans(DEPTH), max_size=2), st.integers(1, 4))
@settings(max_examples=by_tier(fast=3, nightly=60), deadline=None)
def test_any_plans_are_computed_whole(first: list[Plan], second: list[Plan], most: int) -> None:
    graphs = [build(each) for each in (first, second) if each]
    check_valid(reading_schedule(graphs, most), graphs, most)


@pytest.mark.parametrize("most", [1, 2, 3])
@pytest.mark.parametrize("name", ["leave_one_out", "every_window"])
def test_rising_plans_read_each_layer_once(name: str, most: int) -> None:
    members = families.family(name, 30)
    found = reading_schedule([build([Plan.identity(30), *(member.plan for member in members)])], most)
    assert [reading.layer for reading in found.readings] == list(range(30))
    assert found.bound == 30


def test_a_layer_with_nothing_left_to_do_comes_before_one_with_more_to_do() -> None:
    graphs = [build(map(Plan.parse, plans)) for plans in (["0-3"], ["1-3"], ["1-3", "1 2"], ["1-3", "1 3"])]
    assert [reading.layer for reading in reading_schedule(graphs, 2).readings] == [0, 1, 2, 3]


def test_neighbours_that_change_places_are_in_memory_together() -> None:
    found = reading_schedule([build(member.plan for member in families.swap_adjacent(30))], 3)
    assert [reading.layer for reading in found.readings] == list(range(30))


def test_the_bound_of_a_loop_is_that_of_the_best_replacement() -> None:
    plan = Plan.parse("[0-3]*3")
    assert reading_schedule([build([plan])], 2).bound == 9  # 0 1 2 3, then 1 2, then 0 1 3: each time one was kept
    assert reading_schedule([build([plan])], 4).bound == 4


def test_live_states_of_leave_one_out_are_the_plans_at_the_front() -> None:
    found = reading_schedule([build([Plan.identity(8), *(each.plan for each in families.leave_one_out(8))])], 3)
    assert found.live[0] in (8, 9)  # one for each layer that was left out, and the plan as trained
