"""Claims over models: exact rows at each threshold, and rarely wrong without an effect."""

from collections.abc import Sequence

import pytest

from layerwise.results.rows import Score
from layerwise.results.selection import Rows
from layerwise.studies.compare.over_models import VerdictAt, correct_by_holm
from page.comparison.several import of_rows

SAME_FUNCTION, SAME_THING = "same_function", "Do the middle layers all do the same thing?"


def about(rows: Sequence[Sequence[Score]], question: str = SAME_THING, models: str = "01234567") -> Rows:
    return of_rows(*rows, models=models).rows.where(measure="claim", claim=question)


def standing(claim: Rows) -> tuple[str, str]:
    every, some = (claim.one(against=over) for over in ("every model", "any model"))
    return every.metric, some.metric


def shown(claim: Rows, left: float = 1.0) -> list[str]:
    return [str(row.variant) for row in claim.where(against=None, value=left)]


def row(value: float, half: float) -> list[Score]:
    harm = Score("contrast", "middle_repeat", 1.0, 0.9, 1.1, claim=SAME_FUNCTION)
    return [Score("contrast", "middle_repeat:skip", value, value - half, value + half, claim=SAME_FUNCTION), harm]


WEAK, CLEAR, OPEN, AGAINST = row(0.5, 0.45), row(0.5, 0.2), row(0.1, 0.4), row(-0.5, 0.2)
WEAKLY_AGAINST, FOR_TWO = row(-0.5, 0.45), row(0.5, 0.4)
NEITHER, BOTH = ("inconclusive", "inconclusive"), ("holds", "holds")
FEW = ("fewer than two measured", "fewer than two measured")
EXACT = [  # rows and model of each run, conclusion, runs for and against
    ("every model by itself", [WEAK, WEAK], "01", BOTH, "", ""),
    ("one weak model of two", [WEAK, OPEN], "01", NEITHER, "", ""),
    ("one clear model of two", [CLEAR, OPEN], "01", ("inconclusive", "holds"), "0", ""),
    ("one comparison less after a clear one", [CLEAR, CLEAR, row(0.5, 0.49)], "012", BOTH, "012", ""),
    ("weakly against one", [WEAKLY_AGAINST, WEAK], "01", NEITHER, "", ""),
    ("clearly against one", [AGAINST, CLEAR], "01", ("does not hold", "holds"), "1", "0"),
    ("weakly against all", [WEAKLY_AGAINST, WEAKLY_AGAINST], "01", ("does not hold", "does not hold"), "", ""),
    ("a model without the rows", [CLEAR, CLEAR, []], "012", BOTH, "01", ""),
    ("one model with the rows", [CLEAR, [], []], "012", FEW, "0", ""),
    ("two runs of one model", [CLEAR, CLEAR], "aa", FEW, "aa", ""),
    ("runs of one model that agree", [CLEAR, CLEAR, CLEAR], "aab", BOTH, "aab", ""),
    ("runs of one model that disagree", [CLEAR, OPEN, CLEAR], "aab", ("inconclusive", "holds"), "b", ""),
    ("enough for two models", [FOR_TWO, FOR_TWO, AGAINST], "aab", ("does not hold", "holds"), "aa", "b"),
    ("and not for three", [FOR_TWO, FOR_TWO, AGAINST], "012", ("does not hold", "inconclusive"), "", "2"),
    # At 95 % it is within the margin; widened it lies above zero and beyond the margin.
    ("a small contrast", [row(0.03, 0.0195), row(0.1, 0.5), row(0.1, 0.5)], "012", NEITHER, "", ""),
]


@pytest.mark.parametrize(
    ("rows", "models", "over", "holds", "not_"), [case[1:] for case in EXACT], ids=[case[0] for case in EXACT]
)
def test_conclusions_over_models(
    rows: list[list[Score]], models: str, over: tuple[str, str], holds: str, not_: str
) -> None:
    claim = about(rows, models=models)
    assert standing(claim) == over
    assert "".join(name[1] for name in shown(claim)) == holds
    assert "".join(name[1] for name in shown(claim, -1.0)) == not_


HARM = "Do some layers do harm?"


def test_a_harmful_layer_counts_by_its_corrected_p() -> None:
    def rows(p: float, called: str = "harmful") -> list[Score]:
        names = ["no_effect"] * 3 + [called] + ["no_effect"] * 4
        return [
            Score("verdict", name, -0.1, -0.2, -0.05, layer=layer, p_adjusted=p) for layer, name in enumerate(names)
        ]

    none = rows(0.001, "inconclusive")
    assert shown(about([rows(0.001), none, none], HARM)) == ["m0"]
    assert shown(about([rows(0.02), none, none], HARM)) == []
    assert shown(about([rows(0.001), rows(0.02), none], HARM)) == ["m0", "m1"]
    assert shown(about([rows(0.001), rows(0.04), none], HARM)) == ["m0"]


def test_holm_stops_at_the_first_step_that_is_not_significant() -> None:
    def until(most: int) -> VerdictAt:
        return lambda comparisons: "supported" if comparisons <= most else "inconclusive"

    verdicts = {"a": until(4), "b": until(2), "c": until(1), "d": until(0)}
    assert correct_by_holm(verdicts, ["supported"]) == ("a",)
    assert correct_by_holm({**verdicts, "b": until(3)}, ["supported"]) == ("a", "b")
    assert correct_by_holm({**verdicts, "b": until(3), "c": until(2)}, ["supported"]) == ("a", "b", "c")
