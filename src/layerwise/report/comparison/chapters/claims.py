"""What became of the published claims in each model, and whether each holds in all of them or in any."""

from __future__ import annotations

from collections.abc import Sequence

from layerwise.report.claims import Paper
from layerwise.report.claims.chapter import BADGES, card
from layerwise.report.comparison.compared import Compared
from layerwise.report.comparison.tables import ABSENT, claim_rows, claim_sentence
from layerwise.report.comparison.verdicts import ByPaper, OverModels
from layerwise.report.page.chapter import Chapter, Heading, folded, lead, note, spaced
from layerwise.report.page.markup import Safe, element
from layerwise.report.page.wording import listed

HEADING = Heading("claims", "What became of the claims, model by model", "Claims")
KINDS: dict[str, str] = {
    **{str(verdict): kind for verdict, kind in BADGES.items()},
    "holds": "resolved",
    "does not hold": "contradicted",
    ABSENT: "described",
}
"""From a verdict, in one model or over models, to the kind of its badge."""
MARKED = frozenset(KINDS) - {"not measured", ABSENT}
METHOD = (
    "A column of a model has the verdict of its own run. “In every model?” holds where the claim is supported in each"
    " that was measured, and does not hold where one is shown without it; “in any model?” holds where one is shown with"
    " it, and does not hold where each is without. What is shown of one among several is corrected over the models"
    " (Holm), with intervals widened to the corrected level; it is not corrected over the claims."
)


def claims(compared: Compared, by_paper: ByPaper) -> Chapter:
    """A table of verdicts for each paper, and every claim with its numbers in every model."""
    papers = sorted(by_paper, key=lambda each: -sum(len(claim.measured) for claim in each[1]))
    if not papers:
        return HEADING.missing("No published claim can be decided from the rows of these runs.")
    body = (
        lead("A rule stated beforehand decides each claim in each run. What that says over models stands beside it."),
        *(part for paper, each in papers for part in _paper(compared, paper, each)),
        note(METHOD),
    )
    return HEADING.chapter(body)


def _paper(compared: Compared, paper: Paper, claims: Sequence[OverModels]) -> tuple[Safe, ...]:
    measured = [claim for claim in claims if claim.measured]
    rest = [claim.published.name for claim in claims if not claim.measured]
    missing = (note(f"Measured in none of the runs: {listed(rest)}."),) if rest else ()
    details = element("ol", *(_claim(claim) for claim in measured), class_="claims")
    return (
        element("h3", paper.title, " ", element("small", paper.citation)),
        claim_rows(compared, measured, _badge).html(),
        *missing,
        folded("Numbers and rules of these claims, model by model", details),
    )


def _claim(claim: OverModels) -> Safe:
    lines = (
        spaced(element("p", element("b", name), " ", _badge(each.verdict), f" {each.reasons}", class_="measured"))
        for name, each in claim.claims.items()
    )
    return card(claim.published, element("p", claim_sentence(claim)), *lines)


def _badge(verdict: str) -> str:
    return element("span", verdict, class_=f"badge {KINDS[verdict]}") if verdict in MARKED else verdict
