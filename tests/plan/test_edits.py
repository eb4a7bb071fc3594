"""The named edits of the literature and their errors; the laws test the algebra."""

from collections.abc import Callable

import pytest

from layerwise.errors import PlanError
from layerwise.plan import Plan, Reduction, edits

WHOLE = Plan.identity(8)


@pytest.mark.parametrize(
    ("edited", "text"),
    [
        (edits.skip(WHOLE, 3), "0-2 4-7"),
        (edits.skip(WHOLE, 7, 0), "1-6"),
        (edits.skip(Plan.parse("0 (1|2 3|4)*2 [1 (1)]*2 1*3"), 1), "0 (2 3|4)*2"),
        (edits.swap(WHOLE, 0, 7), "7 1-6 0"),
        (edits.swap(Plan.parse("1*2 (1|2) [2 3]*2"), 1, 2), "2*2 (2|1) [1 3]*2"),
        (edits.replace(WHOLE, 4, 3), "0-3 3 5-7"),
        (edits.reverse(WHOLE, 0, 8), "7-0"),
        (edits.reverse(Plan.parse("0 (1|2) 3*2"), 1, 3), "0 3*2 (1|2)"),
        (edits.move(WHOLE, 0, 7), "1-7 0"),
        (edits.move(WHOLE, 5, 2), "0 1 5 2-4 6 7"),
        (edits.repeat(WHOLE, 2, 5, 3), "0 1 [2-4]*3 5-7"),
        (edits.repeat(Plan.parse("0 1*2 (2|3)*2"), 1, 2, 3), "0 1*6 (2|3)*2"),
        (edits.repeat(Plan.parse("0 1*2 (2|3)*2"), 2, 3, 3), "0 1*2 (2|3)*6"),
        (edits.parallel(WHOLE, 2, 4), "0 1 (2|3) 4-7"),
        (edits.parallel(WHOLE, 2, 4, Reduction("sum")), "0 1 (2|3):sum 4-7"),
        (edits.parallel(WHOLE, 2, 3), "0-7"),
        (edits.parallel(WHOLE, 2, 3, Reduction("gain", 2)), "0 1 (2):gain=2 3-7"),
        (edits.loop(WHOLE, 2, 4, 3), "0 1 (2|3)*3 4-7"),
        (edits.loop(WHOLE, 2, 3, 3), "0 1 2*3 3-7"),
        (edits.without_branch(WHOLE, 3, "attn"), "0-2 3.mlp 4-7"),
        (
            edits.without_branch(Plan.parse("3*2 (3.mlp|2|3.attn) [3.mlp] 3.attn"), 3, "mlp"),
            "3.attn*2 (2|3.attn) 3.attn",
        ),
        (edits.skip(Plan.parse("0 3.attn (3.mlp|2) 3"), 3), "0 (2)"),
        (edits.swap(Plan.parse("3.attn*2 2 3.mlp"), 2, 3), "2.attn*2 3 2.mlp"),
        (edits.replace(Plan.parse("3.attn 2 3"), 3, 5), "5.attn 2 5"),
    ],
)
def test_edits(edited: Plan, text: str) -> None:
    assert str(edited) == text
    assert Plan.identity(8) == WHOLE


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (lambda: edits.skip(WHOLE, 8), "does not run layer 8; the layers it runs: 0-7"),
        (lambda: edits.skip(WHOLE, [1, 2]), "named one by one"),  # type: ignore[arg-type]
        (lambda: edits.skip(WHOLE, *range(8)), "skips every layer"),
        (lambda: edits.swap(WHOLE, 1, 9), "does not run layer 9"),
        (lambda: edits.swap(WHOLE, 1, 1.0), "whole numbers"),  # type: ignore[arg-type]
        (lambda: edits.replace(WHOLE, 9, 1), "does not run layer 9"),
        (lambda: edits.replace(WHOLE, 1, -1), "a layer is a whole number"),
        (lambda: edits.without_branch(WHOLE, 9, "attn"), "does not run layer 9"),
        (lambda: edits.without_branch(WHOLE, 3, "atn"), "unknown half 'atn'.*did you mean attn"),  # type: ignore[arg-type]
        (
            lambda: edits.without_branch(Plan.parse("0 3.mlp"), 3, "attn"),
            r"does not run 3\.attn; .* the other half alone",
        ),
        (lambda: edits.without_branch(Plan.parse("3.mlp"), 3, "mlp"), r"3\.mlp is all that the plan runs"),
        (lambda: edits.reverse(WHOLE, 3, 3), "0 <= start < stop <= 8"),
        (lambda: edits.reverse(WHOLE, -3, -1), "0 <= start < stop <= 8"),
        (lambda: edits.reverse(WHOLE, 3, 9), "0 <= start < stop <= 8"),
        (lambda: edits.reverse(WHOLE, 1.0, 3), "whole numbers"),  # type: ignore[arg-type]
        (lambda: edits.move(WHOLE, 0, 8), "0 <= start < stop <= 8"),
        (lambda: edits.move(WHOLE, 8, 0), "0 <= start < stop <= 8"),
        (lambda: edits.shuffle(WHOLE, 0, 8, None), "a seed is a whole number"),  # type: ignore[arg-type]
        (lambda: edits.repeat(WHOLE, 0, 8, 0), "from 1 up"),
        (lambda: edits.repeat(WHOLE, 0, 8, 2_000), "more than 10,000"),
        (lambda: edits.parallel(WHOLE, 0, 2, "sum"), "is a Reduction"),  # type: ignore[arg-type]
        (lambda: edits.parallel(WHOLE, 0, 1, "sum"), "is a Reduction"),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_edit_is_told_why(edit: Callable[[], Plan], reason: str) -> None:
    with pytest.raises(PlanError, match=reason):
        edit()


def test_a_seed_draws_the_same_order_on_every_machine() -> None:
    assert str(edits.shuffle(Plan.identity(12), 1, 11, seed=7)) == "0 9 4 2 5 8 1 10 7 3 6 11"
