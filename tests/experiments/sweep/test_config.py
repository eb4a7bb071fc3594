"""A sweep is checked when it is made, before anything that takes time."""

from __future__ import annotations

import pytest

from layerwise.errors import PlanError
from layerwise.experiments.sweep.config import Sweep
from layerwise.plan import families


def test_members_are_the_model_the_families_and_the_plans_of_ones_own() -> None:
    members = Sweep(model="m", families=("leave_one_out", "swap_adjacent"), plan=("0 (1|2) 3", "0-3")).members(4)
    expected = [*families.leave_one_out(4), *families.swap_adjacent(4)]
    assert list(members[1:-2]) == expected
    assert (str(members[0].plan), members[0].family) == ("0-3", "identity")
    assert [(str(member.plan), member.family, member.affected) for member in members[-2:]] == [
        ("0 (1|2) 3", "given", 4),
        ("0-3", "given", 4),
    ]


def test_a_family_that_is_unknown_is_refused_at_once() -> None:
    with pytest.raises(PlanError, match="unknown family 'painter'; did you mean painters"):
        Sweep(model="m", families=("painter",))


def test_a_plan_that_cannot_be_read_is_refused_at_once() -> None:
    with pytest.raises(PlanError, match="never closed"):
        Sweep(model="m", plan=("0-3 (1",))


def test_a_plan_beyond_the_model_is_refused_when_its_depth_is_known() -> None:
    with pytest.raises(PlanError, match="the model has 4 layers"):
        Sweep(model="m", families=(), plan=("0-4",)).members(4)


@pytest.mark.parametrize(
    ("depth", "possible"),
    [
        (1, {"leave_branch_out", "repeat_blocks"}),
        (2, {"painters", "leave_one_out", "leave_branch_out", "swap_adjacent", "every_window", "repeat_blocks"}),
        (3, set(families.FAMILIES)),
    ],
)
def test_families_that_need_more_layers_are_refused_by_name(depth: int, possible: set[str]) -> None:
    for name in families.FAMILIES:
        if name in possible:
            assert len(Sweep(model="m", families=(name,)).members(depth)) > 1
        else:
            layers = "1 layer " if depth == 1 else f"{depth} layers "
            with pytest.raises(
                PlanError, match=f"the family '{name}' does not exist for a model of {layers}"
            ) as caught:
                Sweep(model="m", families=(name,)).members(depth)
            assert set(str(caught.value).rpartition("Known here: ")[2].split(", ")) == possible
