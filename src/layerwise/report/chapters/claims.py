"""What became of the published claims, paper by paper: the chapter to read when only one is read."""

from __future__ import annotations

from collections.abc import Sequence

from layerwise.report.chapters.chapter import Chapter, lead, missing
from layerwise.report.claims import Claim, Judged, Verdict, judged
from layerwise.report.data import Evidence
from layerwise.report.markup import Safe, element
from layerwise.report.wording import counted, listed

BADGES: dict[Verdict, str] = {
    "supported": "resolved",
    "explained by the null": "null",
    "contradicted": "contradicted",
    "not resolvable": "unresolved",
    "not measured": "described",
}


def claims(evidence: Evidence) -> Chapter:
    """The claims as a list of answers for each paper, each with its citation, its rule and what could be seen."""
    # The paper of which most is measured comes first: it is what the run was made for.
    told = sorted(judged(evidence), key=lambda each: -each.count)
    title = "What became of the claims"
    if not told:
        return Chapter("claims", title, "Claims", (missing("No published claim can be decided from these rows."),))
    body = (
        lead(f"{_summary([claim for each in told for claim in each.claims])} A rule stated beforehand decides each."),
        *(part for each in told for part in _paper(each)),
    )
    return Chapter("claims", title, "Claims", body)


def _paper(each: Judged) -> tuple[Safe, ...]:
    measured = [claim for claim in each.claims if claim.verdict != "not measured"]
    rest = [claim for claim in each.claims if claim.verdict == "not measured"]
    folded = element(
        "details",
        element("summary", f"{counted(len(rest), 'claim')} of this paper not measured in this run"),
        element("ol", *(_claim(claim) for claim in rest), class_="claims"),
    )
    return (
        element("h3", each.paper.title, " ", element("small", each.paper.citation)),
        element("ol", *(_claim(claim) for claim in measured), class_="claims"),
        *((folded,) if rest else ()),
    )


def _summary(told: Sequence[Claim]) -> str:
    """How many claims got which verdict, in words."""
    counts = {verdict: sum(claim.verdict == verdict for claim in told) for verdict in BADGES}
    shares = listed([f"{count} {verdict}" for verdict, count in counts.items() if count])
    return f"{counted(len(told), 'claim')} of the literature, put to this model: {shares}."


def _claim(claim: Claim) -> Safe:
    badge = element("span", claim.verdict, class_=f"badge {BADGES[claim.verdict]}")
    figures = (element("p", claim.figures, class_="measured"),) if claim.figures else ()
    power = (element("p", claim.power, class_="why"),) if claim.power else ()
    published = claim.published
    return element(
        "li",
        element(
            "div",
            element("h4", claim.name),
            element("p", published.statement, " ", element("cite", published.citation), class_="published"),
        ),
        element(
            "div",
            badge,
            *figures,
            element("p", claim.why, class_="why"),
            *power,
            element("details", element("summary", "The rule"), element("p", published.rule), class_="rule"),
        ),
    )
