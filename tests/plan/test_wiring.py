"""The wiring matrix of the systems that DESIGN lists, written out by hand; the laws compare it with numbers."""

from __future__ import annotations

import pytest

from layerwise.errors import PlanError
from layerwise.plan import Plan

THIRD = 1 / 3


def rows(text: str) -> list[list[float]]:
    """The rows of a plan's wiring up to the diagonal."""
    return [list(row[: number + 1]) for number, row in enumerate(Plan.parse(text).matrix())]


@pytest.mark.parametrize("text", ["0-3", "3-0", "2 2 2 2", "1*4", "[0 1]*2", "0.attn 0.mlp 1-2.mlp"])
def test_without_groups_every_step_reads_all_that_came_before(text: str) -> None:
    assert rows(text) == [[1.0] * (number + 1) for number in range(5)]


def test_members_of_a_group_read_the_same_and_are_read_by_their_share() -> None:
    assert rows("0 (1|2|3) 4") == [
        [1],
        [1, 1],
        [1, 1, 0],
        [1, 1, 0, 0],
        [1, 1, THIRD, THIRD, THIRD],
        [1, 1, THIRD, THIRD, THIRD, 1],
    ]


def test_a_loop_reads_the_merged_state_again() -> None:
    assert rows("(1|2)*2") == [[1], [1, 0], [1, 0.5, 0.5], [1, 0.5, 0.5, 0], [1, 0.5, 0.5, 0.5, 0.5]]


def test_sum_and_gain_weigh_the_whole_branch() -> None:
    assert rows("(0 1|2):sum")[-1] == [1, 1, 1, 1]
    assert rows("(0 1|2):gain=-3")[-1] == [1, -1.5, -1.5, -1.5]
    assert rows("((0|1)|2)")[-1] == [1, 0.25, 0.25, 0.5]


def test_a_plan_too_long_to_write_out_is_refused() -> None:
    with pytest.raises(PlanError, match="at most 2,000 steps"):
        Plan.parse("0*2001").matrix()
