"""The strings of RYS, as its own code reads them (dnhkng/RYS, src/core/layer_config.py)."""

from __future__ import annotations

import pytest

from layerwise.errors import PlanError
from layerwise.plan import Plan
from layerwise.plan.checks import STEP_LIMIT
from layerwise.plan.dialects import dialect_of, read_rys, write_rys


@pytest.mark.parametrize(
    ("text", "depth", "plan"),
    [
        ("layers:0,1,2,2,3", None, "0-2 2 3"),
        ("LAYERS: 0, 1 ,2,", 8, "0-2"),
        ("0,1,2", None, "0-2"),
        ("blocks:3,6", 8, "0-5 3-7"),
        ("blocks:3,6;4,6", 8, "0-5 3-5 4-7"),
        ("blocks: (3, 6); (4, 6) ;", 8, "0-5 3-5 4-7"),
        ("blocks:31,34;43,45", 64, "0-33 31-44 43-63"),
        ("43,45;31,34", 64, "0-33 31-44 43-63"),
        ("(3, 6)", 8, "0-5 3-7"),
        ("3,6", 8, "0-5 3-7"),
        ("(0, 0)", 8, "0-7"),
        ("0,8", 8, "[0-7]*2"),
        ("7,8;7,8", 8, "0-7 7 7"),
    ],
)
def test_strings_that_rys_reads(text: str, depth: int | None, plan: str) -> None:
    assert dialect_of(text) == "rys"
    assert read_rys(text, depth).order() == Plan.parse(plan).order()


@pytest.mark.parametrize(
    ("text", "depth", "reason", "position"),
    [
        ("blocks:3,6", None, "its depth is needed: name the model, or its number of layers with --depth", None),
        ("blocks:6,3", 8, "i is below j, and 6 is not below 3", 7),
        ("blocks:3,3", 8, "3 is not below 3", 7),
        ("blocks:3,9", 8, "a model of 8 layers ends at 8 or before, not at 9", 7),
        ("blocks:3,6,9", 12, "separated by semicolons", 10),
        ("blocks:3", 12, "a block is a pair of layers", 7),
        ("layers:0 1", None, "separated by commas", 9),
        ("layers:", None, "numbers with commas", 7),
        ("layers:0,٣", None, "numbers with commas", 9),
        ("blocks:٣,٦", 8, "a block is a pair of layers", 7),
        ("(３,６)", 8, "a block is a pair of layers", 0),
        ("layers:0,-1", None, "numbers with commas", 9),
        ("layers:0,10000", None, "numbered from 0 to 9999", 9),
        ("layers:0,12", 12, "visits layer 12, but the model has 12 layers", 2),
        ("layers:" + "0," * (STEP_LIMIT + 1), None, "more than 10,000 layers", 7 + 2 * STEP_LIMIT),
        (";".join(["blocks:0,9999"] + ["0,9999"] * 3), 10_000, "more than 10,000 layers", None),
    ],
)
def test_strings_that_say_no_plan_are_refused(text: str, depth: int | None, reason: str, position: int | None) -> None:
    with pytest.raises(PlanError) as refused:
        read_rys(text, depth)
    assert reason in str(refused.value)
    assert refused.value.position == position


@pytest.mark.parametrize(
    ("plan", "depth", "text"),
    [
        ("0-33 31-44 43-63", 64, "blocks:31,34;43,45"),
        ("0-5 5 5-7", 8, "blocks:5,6;5,6"),
        ("0-7", 8, "layers:0,1,2,3,4,5,6,7"),
        ("0-3 5-7", 8, "layers:0,1,2,3,5,6,7"),
        ("0-2 2", 4, "layers:0,1,2,2"),
        ("1-3 2 3", 4, "layers:1,2,3,2,3"),
    ],
)
def test_only_plans_that_repeat_are_written_as_blocks(plan: str, depth: int, text: str) -> None:
    assert write_rys(plan, depth) == text


def test_layers_of_several_models_have_no_string() -> None:
    with pytest.raises(
        PlanError, match=r"about one model, and the plan names a, b: leave the names out, or write merg"
    ):
        write_rys("a:0-2 b:3")
    with pytest.raises(PlanError, match=r"cannot write an RYS string under a plan with Q4_0:3"):
        write_rys("0-2 Q4_0:3")
