"""The published claims whose rules are still cases in Markdown; `layerwise.page.published` makes findings of them."""

from __future__ import annotations

from layerwise.page.claims.claim import Verdict
from layerwise.page.claims.published import Claim, ClaimPaper, ClaimRule
from layerwise.page.claims.table import CLAIMS, PAPERS
from layerwise.page.data import ReportData


def claims(data: ReportData) -> tuple[Claim, ...]:
    return tuple(each.decide(data) for paper in PAPERS for each in paper.claims)


__all__ = ["CLAIMS", "PAPERS", "Claim", "ClaimPaper", "ClaimRule", "Verdict", "claims"]
