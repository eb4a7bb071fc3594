"""Single layers, neighbors and windows, recognized from the plan alone."""

import pytest

from layerwise.page.data import ReportData
from layerwise.page.derived.curves import DROPPED, REPEATED, SWAPPED, find_changes
from layerwise.plan import Plan
from layerwise.plan.families import repeat_blocks
from layerwise.results.rows import PlanRecord
from page import synthetic

DEPTH = 6


def found(done: str, *families: str) -> dict[tuple[int, int], str]:
    of = find_changes(synthetic.run(DEPTH, families, tasks=("text",)))
    return {(first, last): plan for (what, first, last), plan in of.items() if what == done}


def alone(*plans: Plan) -> ReportData:
    costs = [plan.cost() for plan in plans]
    records = (
        PlanRecord(str(plan), "f", "s", 1, None, cost.evaluations, cost.stages, cost.weights, cost.slots)
        for plan, cost in zip(plans, costs, strict=True)
    )
    return ReportData({"depth": DEPTH}, tuple(records), ())


def test_all_families_that_skip_one_layer_count() -> None:
    every = found(DROPPED, "every_window")
    assert found(DROPPED, "leave_one_out") == {ends: plan for ends, plan in every.items() if ends[0] == ends[1]}
    assert found(DROPPED, "leave_one_out")[2, 2] == "0 1 3-5"
    assert sorted(found(DROPPED, "leave_one_out")) == [(layer, layer) for layer in range(DEPTH)]
    assert len(every) == DEPTH * (DEPTH + 1) // 2 - 1
    assert every[1, 3] == "0 4 5"


def test_only_swaps_of_neighboring_layers_are_found() -> None:
    assert found(SWAPPED, "swap_adjacent", "leave_one_out") == {
        (0, 1): "1 0 2-5",
        (1, 2): "0 2 1 3-5",
        (2, 3): "0 1 3 2 4 5",
        (3, 4): "0-2 4 3 5",
        (4, 5): "0-3 5 4",
    }
    assert found(SWAPPED, "leave_one_out", "repeat_blocks") == {}


def test_repeated_windows_are_found_with_their_number_of_runs() -> None:
    twice = found(REPEATED[2], "repeat_blocks")
    assert len(twice) == DEPTH * (DEPTH + 1) // 2
    assert (twice[2, 2], twice[1, 3]) == ("0 1 2*2 3-5", "0 [1-3]*2 4 5")
    both = find_changes(alone(*(member.plan for member in repeat_blocks(DEPTH, times=(2, 3)))))
    thrice = {(first, last): plan for (done, first, last), plan in both.items() if done == REPEATED[3]}
    assert thrice.keys() == twice.keys()
    assert thrice[1, 3] == "0 [1-3]*3 4 5"
    assert {(first, last): plan for (done, first, last), plan in both.items() if done == REPEATED[2]} == twice


@pytest.mark.parametrize("text", ["0 2 4 5", "1 0 3-5", "0-5", "5-0", "0 1 3 2 5 4", "0 1*4 2-5", "0 2 1 1 2-5"])
def test_other_plans_are_ignored(text: str) -> None:
    assert find_changes(alone(Plan.parse(text))) == {}
