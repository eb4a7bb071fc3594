"""Few runs of a truth find a rule that errs too often."""

from dataclasses import replace

import pytest

from layerwise.report import ReportData
from layerwise.report.claims import Published, Verdict
from layerwise.report.claims.contrasts import Facts
from layerwise.report.claims.published import Case, FactCondition, Prose, prose_of
from layerwise.results.rows import Score
from report.claims.truths import ENOUGH, claim_of, concluded, ends

EVERY = 8


def numbered(run: int) -> list[Score]:
    return [Score("planted", "run", float(run), claim="all")]


def planted(right: Verdict, wrong: Verdict) -> Published:
    def facts(data: ReportData) -> Facts:
        (row,) = data.rows.where(measure="planted")
        return {
            "wrong": row.value % EVERY == 0,
            **dict.fromkeys(("figures", "power", "harmful", "naive", "layers"), ""),
        }

    class Planted(Published):
        @property
        def prose(self) -> Prose:
            cases = (Case(wrong, (FactCondition.parse("wrong"),)), Case(right))
            return replace(prose_of("heterogeneity")["anti_layers"], cases=cases)

    return Planted("anti_layers", facts)


def test_a_rule_that_is_wrong_one_time_in_eight_fails() -> None:
    with pytest.raises(AssertionError):
        ends(planted("supported", "contradicted"), numbered, 6, "supported", ("contradicted",))


def test_a_rule_that_tells_too_rarely_fails() -> None:
    with pytest.raises(AssertionError):
        ends(planted("inconclusive", "supported"), numbered, 6, "supported", ("contradicted",))


def test_runs_that_end_alike_are_enough_after_sixty_and_a_dissent_asks_for_all() -> None:
    def rule(first: Verdict) -> Published:
        return planted("supported", first)

    assert concluded(rule("supported"), numbered, 6, 200) == {"supported": ENOUGH}
    assert concluded(rule("contradicted"), numbered, 6, 200) == {"supported": 175, "contradicted": 25}
    assert concluded(rule("supported"), numbered, 6, ENOUGH - 1).total() == ENOUGH - 1


def test_a_rule_that_is_right_passes() -> None:
    ends(planted("supported", "supported"), numbered, 6, "supported", ("contradicted",))
    assert claim_of(planted("supported", "contradicted"), numbered(0), 6).verdict == "contradicted"
