"""Single layers, neighbours and windows, recognised from the plan alone."""

from __future__ import annotations

import pytest

from layerwise.plan import Plan
from layerwise.plan.families import repeat_blocks
from layerwise.report.data import ReportData
from layerwise.report.evidence import Evidence
from layerwise.report.sweep.layers import neighbour_swaps, repeated_windows, single_skips, skipped_windows
from layerwise.results.rows import PlanRecord
from report import synthetic

DEPTH = 6


def evidence(*families: str) -> Evidence:
    return Evidence.of(synthetic.run(DEPTH, families, tasks=("text",)))


def test_every_family_that_drops_one_layer_counts() -> None:
    assert single_skips(evidence("leave_one_out")) == single_skips(evidence("every_window"))
    assert sorted(single_skips(evidence("leave_one_out"))) == list(range(DEPTH))
    assert single_skips(evidence("leave_one_out"))[2] == "0 1 3-5"


def test_every_neighbouring_pair_is_found_and_nothing_else() -> None:
    assert neighbour_swaps(evidence("swap_adjacent", "leave_one_out")) == {
        0: "1 0 2-5",
        1: "0 2 1 3-5",
        2: "0 1 3 2 4 5",
        3: "0-2 4 3 5",
        4: "0-3 5 4",
    }
    assert neighbour_swaps(evidence("leave_one_out", "repeat_blocks")) == {}


def test_every_window_is_found_with_its_ends() -> None:
    found = skipped_windows(evidence("every_window"))
    assert len(found) == DEPTH * (DEPTH + 1) // 2 - 1
    assert found[1, 3] == "0 4 5"


def test_every_repeated_window_is_found_with_its_ends() -> None:
    found = repeated_windows(evidence("repeat_blocks"))
    assert len(found) == DEPTH * (DEPTH + 1) // 2
    assert found[2, 2] == "0 1 2*2 3-5"
    assert found[1, 3] == "0 [1-3]*2 4 5"


def test_blocks_that_run_three_times_are_told_from_those_that_run_twice() -> None:
    members = repeat_blocks(DEPTH, times=(2, 3))
    records = [PlanRecord(str(member.plan), "f", "s", 1, None, *costs(member.plan)) for member in members]
    both = Evidence.of(ReportData({"depth": DEPTH}, tuple(records), ()))
    assert repeated_windows(both) == repeated_windows(evidence("repeat_blocks"))
    assert repeated_windows(both, times=3).keys() == repeated_windows(both).keys()
    assert repeated_windows(both, times=3)[1, 3] == "0 [1-3]*3 4 5"


def costs(plan: Plan) -> tuple[int, int, int, int]:
    cost = plan.cost()
    return cost.evaluations, cost.stages, cost.weights, cost.slots


def test_parallel_groups_are_not_mistaken_for_windows() -> None:
    drops = skipped_windows(evidence("painters"))
    assert set(drops.values()) == {"0", "0 1 5", "0-2 4 5"}


@pytest.mark.parametrize("text", ["0 2 4 5", "1 0 3-5", "0-5", "5-0", "0 1 3 2 5 4", "0 1*3 2-5", "0 2 1 1 2-5"])
def test_other_plans_are_none_of_these(text: str) -> None:
    cost = Plan.parse(text).cost()
    record = PlanRecord(text, "f", "s", 1, None, cost.evaluations, cost.stages, cost.weights, cost.slots)
    alone = Evidence.of(ReportData({"depth": DEPTH}, (record,), ()))
    assert skipped_windows(alone) == repeated_windows(alone) == neighbour_swaps(alone) == {}
