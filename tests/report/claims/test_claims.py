"""Every verdict of every claim, each from rows that were planted for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from layerwise.report import ReportData
from layerwise.report.claims import CLAIMS, PAPERS, Claim, Paper, claim_lines, claims
from layerwise.report.claims.published import Case, prose_of
from layerwise.report.writers.claims_page import claims as chapter_of
from layerwise.results.rows import Score
from report import diagnosed, synthetic
from report.diagnosed import row

DEPTH = 30
Rows = Iterable[Score]


def verdict(name: str, rows: Rows, depth: int = DEPTH) -> str:
    return found(name, rows, depth).verdict


def found(name: str, rows: Rows, depth: int = DEPTH) -> Claim:
    return {claim.name: claim for claim in told_of(rows, depth)}[name]


def told_of(rows: Rows, depth: int = DEPTH) -> tuple[Claim, ...]:
    return claims(ReportData({"depth": depth}, (), tuple(rows)))


PLANTED = {
    "Middle layers are alike": "supported",
    "Order matters more for reasoning": "supported",
    "Weights are predictable": "explained by the null",
    "Weights oscillate": "explained by the null",
    "The oscillation is universal": "explained by the null",
    "Predicted weights collapse together": "explained by the null",
    "Errors of several layers accumulate nonlinearly": "supported",
    "Core layers": "contradicted",
    "Anti-layers": "supported",
    "Importance spans orders of magnitude": "explained by the null",
    "Redundant layers are redundant together": "contradicted",
    "Recovery follows importance": "explained by the null",
    "Only scaling survives": "explained by the null",
    "Redundant layers survive scaling together, and nothing else": "explained by the null",
    "Five metrics agree": "supported",
}


@pytest.mark.parametrize("depth", [12, 30])
def test_a_whole_diagnosis_decides_every_claim_with_figures(depth: int) -> None:
    told = [claim for claim in told_of(diagnosed.scores(depth), depth) if claim.verdict != "not measured"]
    assert {claim.name: claim.verdict for claim in told} == PLANTED
    assert all(any(letter.isdigit() for letter in claim.figures) and "[" in claim.figures for claim in told[:-4])
    assert all(claim.why.endswith(".") and claim.figures.endswith(".") for claim in told)


def test_tokens_stand_beside_losses() -> None:
    told = {claim.name: claim.figures for claim in told_of(diagnosed.scores(12), 12)}
    for name in ("Core layers", "Anti-layers", "Only scaling survives", "Order matters more for reasoning"):
        assert "tokens)" in told[name]


def test_values_that_are_not_finite_are_not_measured() -> None:
    broken = [row("deltas", "correlation", float("nan"), 0.1, amount=1)]
    assert verdict("Weights oscillate", broken) == "not measured"


def test_lines_for_the_terminal() -> None:
    lines = claim_lines(diagnosed.diagnosis(12))
    assert len(lines) == len(PLANTED)
    assert any(
        line.startswith("Core layers: contradicted. At layers 1–4 skipping a layer costs −0.90") for line in lines
    )
    assert "\n" not in "".join(lines)
    assert claim_lines(synthetic.run(6)) == ()


@pytest.mark.parametrize("order", [reversed, list])
def test_claims_do_not_depend_on_the_order_of_the_rows(order: Callable[[list[Score]], Iterable[Score]]) -> None:
    rows = diagnosed.scores(12)
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
def test_every_row_has_its_prose_and_every_prose_its_row(paper: Paper) -> None:
    prose = prose_of(paper.key)
    assert [claim.key for claim in paper.claims] == list(prose)
    for claim in paper.claims:
        own = prose[claim.key]
        assert all(case.reason for case in own.cases), claim.key
        assert (own.cases[-1].verdict, own.cases[-1].conditions) == ("not resolvable", ()), claim.key
        assert all(case.conditions for case in own.cases[:-1]), claim.key
        assert all((own.name, own.statement, own.rule, own.needs, own.figures)), claim.key
        assert own.citation.startswith("arXiv "), claim.key
        assert bool(claim.certain) == bool(own.uncertain), claim.key
    assert len(CLAIMS) == sum(len(each.claims) for each in PAPERS) == 45


def test_the_chapter_has_a_row_a_claim_beside_the_papers_number_and_one_line_of_what_is_missing() -> None:
    data = diagnosed.diagnosis(12)
    chapter = chapter_of(replace(data, manifest={**data.manifest, "model": "org/tiny-12"}))
    page = str(chapter.html(1))
    assert "15 claims of the literature, put to tiny-12: " in page
    assert page.count("<tr>") == 2 + len(PLANTED)  # two papers, each with a head
    assert "R² 0.91 inside the sample" in page
    missing = page.partition("Not measured here: ")[2].partition("<")[0]
    assert missing.count(";") == len(told_of([], 12)) - len(PLANTED) - 11 - 1  # eleven are of papers without a row


@pytest.mark.parametrize("key", CLAIMS)
def test_without_rows_a_claim_says_what_measures_them(key: str) -> None:
    (claim,) = [claim for claim in told_of([]) if claim.published.key == key]
    assert claim.verdict == "not measured"
    assert claim.why == CLAIMS[key].prose.needs
    assert claim.why.startswith("It needs ")
    assert claim.figures == claim.power == ""
