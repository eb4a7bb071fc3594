"""Properties of every claim; tests/golden freezes their verdicts and figures."""

from collections.abc import Callable, Iterable

import pytest

from layerwise.page import ReportData
from layerwise.page.claims import CLAIMS, PAPERS, Claim, ClaimPaper, claims
from layerwise.page.claims.published import Case, FactCondition, prose_of
from layerwise.page.published import judge_published
from layerwise.results.rows import Score
from page import planted
from page.planted import of, row


def told_of(rows: Iterable[Score], depth: int = 30) -> tuple[Claim, ...]:
    return claims(ReportData({"depth": depth}, (), tuple(rows)))


def test_values_that_are_not_finite_are_not_measured() -> None:
    broken = row("deltas", "correlation", float("nan"), 0.1, amount=1)
    assert {claim.verdict for claim in told_of([broken])} == {"not measured"}
    assert judge_published(of(broken)) == ()


@pytest.mark.parametrize("order", [reversed, list])
def test_claims_do_not_depend_on_the_order_of_the_rows(order: Callable[[list[Score]], Iterable[Score]]) -> None:
    rows = planted.DIAGNOSIS.scores
    assert told_of(order(list(rows)), 12) == told_of(rows, 12)


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("shown if gain above: It gains.", "begins with no verdict; write one of supported, "),
        (
            "supported if gain aboves: It gains.",
            "names aboves; a fact lies above, below, within, open or is unmeasured",
        ),
        ("supported if gain none above: It gains.", "is no condition; write a fact"),
    ],
)
def test_a_case_that_nobody_can_read_is_refused(case: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Case.parse(case)


@pytest.mark.parametrize("paper", PAPERS, ids=[paper.key for paper in PAPERS])
def test_every_row_has_its_prose_and_every_prose_its_row(paper: ClaimPaper) -> None:
    prose = prose_of(paper.key)
    assert [claim.key for claim in paper.claims] == list(prose)
    for claim in paper.claims:
        own = prose[claim.key]
        assert all(case.reason for case in own.cases), claim.key
        assert (own.cases[-1].verdict, own.cases[-1].conditions) == ("inconclusive", ()), claim.key
        assert all(case.conditions for case in own.cases[:-1]), claim.key
        assert all((own.name, own.statement, own.rule, own.needs, own.figures, own.number)), claim.key
        assert own.citation.startswith("arXiv "), claim.key
        assert bool(claim.certain) == bool(own.uncertain), claim.key
    assert len(CLAIMS) == sum(len(each.claims) for each in PAPERS)


def test_a_training_that_is_not_over_contradicts_no_claim_about_trained_models() -> None:
    for claim in CLAIMS.values():
        if claim.paper in ("elc_bert", "layershuffle") or claim.key.startswith("growth_"):
            for case, before in zip(claim.prose.cases[1:], claim.prose.cases, strict=False):
                guard = ("inconclusive", (*case.conditions, FactCondition("falling", "true")))
                assert case.verdict != "contradicted" or (before.verdict, before.conditions) == guard, claim.key


@pytest.mark.parametrize("key", CLAIMS)
def test_without_rows_a_claim_says_what_measures_them(key: str) -> None:
    (claim,) = [claim for claim in told_of([]) if claim.published.key == key]
    assert claim.verdict == "not measured"
    assert claim.why == CLAIMS[key].prose.needs
    assert claim.why.startswith("It needs ")
    assert claim.figures == claim.power == ""
