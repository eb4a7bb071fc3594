"""Options of a sweep are checked first."""

from typing import Any

import pytest

import layerwise
from layerwise.errors import OptionError, PlanError
from layerwise.plan import families
from layerwise.runner.plan_choice import PlanChoice
from layerwise.runner.reporter import Silent


def test_members_are_the_original_model_families_and_given_plans() -> None:
    choice = PlanChoice.check(("leave_one_out", "swap_adjacent"), ("0 (1|2) 3", "0-3"), (), None, "2")
    members = choice.list_members(4)
    expected = [*families.leave_one_out(4), *families.swap_adjacent(4)]
    assert list(members[1:-2]) == expected
    assert (str(members[0].plan), members[0].family) == ("0-3", "identity")
    assert [(str(member.plan), member.family, member.affected) for member in members[-2:]] == [
        ("0 (1|2) 3", "given", 4),
        ("0-3", "given", 4),
    ]


def test_windows_loops_and_repeats_follow_the_options() -> None:
    config = PlanChoice.check(("looped", "repeat_blocks"), (), ("1-2",), "1-2,4", "3")
    looped, blocks = families.looped(5, (1, 2, 4)), families.repeat_blocks(5, (3,))
    assert config.list_members(5)[1:] == (*looped, *blocks, *families.window(5, 1, 2, loops=(1, 2, 4)))
    assert config.describe() == ("looped", "repeat_blocks", "loops:1-2,4", "times:3", "window:1-2")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"window": ("4:8",)}, "window must be a range such as 4-8 or an integer, got '4:8'"),
        ({"window": ("8-4",)}, "^window must be ascending, got the descending range '8-4'. Write 4-8.$"),
        ({"window": ("10001-4",)}, "window must be between 0"),
        ({"families": ("looped",), "loops": "2,8-4"}, "^loops must .* got the descending range '8-4'. Write 4-8.$"),
        ({"families": ("looped",), "loops": "0-4"}, "loops must be between 1"),
        ({"families": ("repeat_blocks",), "times": "1"}, "times must be between 2"),
        ({"loops": "1-4"}, "^loops requires families looped"),
        ({"new_tokens": 3}, "^new_tokens requires prompt"),
        ({"families": ("painter",)}, "Unknown family 'painter'; did you mean painters"),
        (
            {"families": ("painters", "looped", "painters")},
            "^families must name each family once, got painters several times. Write painters,looped.$",
        ),
        ({"plans": ("0-3 (1",)}, "never closed"),
    ],
)
def test_invalid_and_unused_options_are_rejected(options: dict[str, Any], reason: str) -> None:
    with pytest.raises((OptionError, PlanError), match=reason):
        layerwise.sweep("no-such-model", reporter=Silent(), **options)


FOR_ONE = {"leave_branch_out", "repeat_blocks", "damped_repeats", "bits", "bits_noise"}


@pytest.mark.parametrize(
    ("depth", "possible"),
    [
        (1, FOR_ONE),
        (2, {*FOR_ONE, "painters", "leave_one_out", "swap_adjacent", "every_window", "random_subsets"}),
        (3, set(families.FAMILIES)),
    ],
)
def test_families_that_need_more_layers_are_rejected_by_name(depth: int, possible: set[str]) -> None:
    for name in families.FAMILIES:
        if name in possible:
            assert len(PlanChoice.check((name,), (), (), None, "2").list_members(depth)) > 1
        else:
            layers = "1 layer " if depth == 1 else f"{depth} layers "
            with pytest.raises(
                PlanError, match=f"The family '{name}' does not exist for a model of {layers}"
            ) as caught:
                PlanChoice.check((name,), (), (), None, "2").list_members(depth)
            assert set(str(caught.value).rpartition("Possible families: ")[2].split(", ")) == possible


def test_the_help_lists_all_families() -> None:
    assert all(name in (layerwise.sweep.__doc__ or "") for name in families.FAMILIES)
