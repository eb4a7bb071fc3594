"""Decide the published claims about layers for one model, from its rows alone. Verdicts:

supported              the rows show it, and no null shows it too
explained by the null  a null gives the published figure too, or the effect is shown to be smaller than the margin
contradicted           the rows show the opposite
inconclusive         the intervals allow both answers; the claim says how much text would decide
not measured           the rows that the rule reads do not exist
"""

from __future__ import annotations

from layerwise.page.claims.claim import Verdict
from layerwise.page.claims.published import Claim, Judged, Paper, Published
from layerwise.page.claims.table import CLAIMS, PAPERS
from layerwise.page.data import ReportData
from layerwise.page.derived.growth import is_growth
from layerwise.results.vocabulary import DIAGNOSED


def judged(data: ReportData) -> tuple[Judged, ...]:
    by_paper = (Judged(paper, tuple(each.decide(data) for each in paper.claims)) for paper in PAPERS)
    return tuple(each for each in by_paper if each.count)


def claims(data: ReportData) -> tuple[Claim, ...]:
    return tuple(each.decide(data) for paper in PAPERS for each in paper.claims)


def claim_lines(data: ReportData) -> tuple[str, ...]:
    if not data.rows.where(measure=DIAGNOSED) and not is_growth(data):
        return ()
    decided = (claim for each in judged(data) for claim in each.claims)
    return tuple(claim.line for claim in decided if claim.verdict != "not measured")


__all__ = ["CLAIMS", "PAPERS", "Claim", "Judged", "Paper", "Published", "Verdict", "claim_lines", "claims", "judged"]
