"""The wiring matrices of the systems in DESIGN, written by hand, and their text form."""

import pytest

from layerwise.errors import PlanError
from layerwise.plan import Plan, family
from layerwise.plan.wiring import picture

THIRD = 1 / 3


def rows(text: str) -> list[list[float]]:
    return [list(row[: number + 1]) for number, row in enumerate(Plan.parse(text).matrix())]


def test_members_of_a_group_read_the_same_and_are_read_by_their_share() -> None:
    assert rows("0 (1|2|3) 4") == [
        [1],
        [1, 1],
        [1, 1, 0],
        [1, 1, 0, 0],
        [1, 1, THIRD, THIRD, THIRD],
        [1, 1, THIRD, THIRD, THIRD, 1],
    ]


def test_sum_and_gain_weigh_the_whole_branch() -> None:
    assert rows("(0 1|2):sum")[-1] == [1, 1, 1, 1]
    assert rows("(0 1|2):gain=-3")[-1] == [1, -1.5, -1.5, -1.5]
    assert rows("((0|1)|2)")[-1] == [1, 0.25, 0.25, 0.5]


def test_a_plan_too_long_to_write_out_is_refused() -> None:
    with pytest.raises(PlanError, match="at most 2,000 steps"):
        Plan.parse("0*2001").matrix()


def test_the_shades_are_what_each_step_reads() -> None:
    assert picture(Plan.parse("0 (1|2):gain=-1 (3|4|5|6|7|8)")).splitlines()[-1] == "out  ████" + "−" * 4 + "░" * 12
    assert picture(Plan.parse("10 (1|2):sum")).splitlines() == [
        " 10  ██",
        "  1  ████",
        "  2  ████··",
        "out  ████████",
    ]
    assert picture(Plan.parse("10.attn 2.mlp")).splitlines() == [
        "10.attn  ██",
        "  2.mlp  ████",
        "    out  ██████",
    ]
    assert picture(Plan.parse("(0|1)")).splitlines()[-1] == "out  ██▓▓▓▓"


@pytest.mark.parametrize("text", ["0-99", "0-9 (10|11|12-90|91)*2 92-99", "0*1999"])
def test_a_long_plan_is_drawn_within_the_size(text: str) -> None:
    lines = picture(Plan.parse(text), size=40).splitlines()
    assert len(lines) == 40
    assert max(map(len, lines)) == 3 + 2 + 2 * 40


def test_a_down_sampled_cell_is_the_mean_of_its_part() -> None:
    members = {member.strategy: member.plan for member in family("painters", 80) if member.affected == 79}
    assert set(picture(members["reverse"], size=20)) <= set("0123456789out \n█")
    last = picture(members["parallel"], size=20).splitlines()[-1].split()[-1]
    # Four columns per cell: the first has the embedding, layer 0, and two of the 79 weights of 1/79.
    assert last == "▓" * 2 + "░" * 38


@pytest.mark.parametrize("size", [0, -3, 2.5])
def test_a_size_is_a_number_of_cells(size: int) -> None:
    with pytest.raises(PlanError, match="a whole number of cells"):
        picture(Plan.identity(4), size=size)


def test_a_notebook_shows_a_plan_as_its_picture() -> None:
    plan = Plan.parse("0 (1|2) 3")
    assert plan._repr_html_() == f'<code>0 (1|2) 3</code><pre style="line-height:1">{picture(plan)}</pre>'
