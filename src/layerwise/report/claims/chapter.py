"""What became of the published claims, paper by paper: the chapter to read when only one is read."""

from __future__ import annotations

from collections.abc import Sequence

from layerwise.report.claims import Claim, Judged, Published, Verdict, judged
from layerwise.report.evidence import Evidence
from layerwise.report.page.chapter import Chapter, Heading, folded, lead
from layerwise.report.page.markup import Safe, element
from layerwise.report.page.wording import counted, listed

BADGES: dict[Verdict, str] = {
    "supported": "resolved",
    "explained by the null": "null",
    "contradicted": "contradicted",
    "not resolvable": "unresolved",
    "not measured": "described",
}
HEADING = Heading("claims", "What became of the claims", "Claims")


def claims(evidence: Evidence) -> Chapter:
    """The claims as a list of answers for each paper, each with its citation, its rule and what could be seen."""
    # The paper of which most is measured comes first: it is what the run was made for.
    papers = sorted(judged(evidence), key=lambda each: -each.count)
    if not papers:
        return HEADING.missing("No published claim can be decided from these rows.")
    body = (
        lead(f"{_summary([claim for each in papers for claim in each.claims])} A rule stated beforehand decides each."),
        *(part for each in papers for part in _paper(each)),
    )
    return HEADING.chapter(body)


def _paper(each: Judged) -> tuple[Safe, ...]:
    measured = [claim for claim in each.claims if claim.verdict != "not measured"]
    rest = [claim for claim in each.claims if claim.verdict == "not measured"]
    summary = f"{counted(len(rest), 'claim')} of this paper not measured in this run"
    return (
        element("h3", each.paper.title, " ", element("small", each.paper.citation)),
        element("ol", *(_claim(claim) for claim in measured), class_="claims"),
        *((folded(summary, element("ol", *(_claim(claim) for claim in rest), class_="claims")),) if rest else ()),
    )


def _summary(decided: Sequence[Claim]) -> str:
    """How many claims got which verdict, in words."""
    counts = {verdict: sum(claim.verdict == verdict for claim in decided) for verdict in BADGES}
    shares = listed([f"{count} {verdict}" for verdict, count in counts.items() if count])
    return f"{counted(len(decided), 'claim')} of the literature, put to this model: {shares}."


def _claim(claim: Claim) -> Safe:
    badge = element("span", claim.verdict, class_=f"badge {BADGES[claim.verdict]}")
    figures = (element("p", claim.figures, class_="measured"),) if claim.figures else ()
    power = (element("p", claim.power, class_="why"),) if claim.power else ()
    return card(claim.published, badge, *figures, element("p", claim.why, class_="why"), *power)


def card(published: Published, *decision: Safe) -> Safe:
    """An item of a list of claims: the claim as it was published, the `decision`, and the rule that was followed."""
    return element(
        "li",
        element(
            "div",
            element("h4", published.name),
            element("p", published.statement, " ", element("cite", published.citation), class_="published"),
        ),
        element(
            "div",
            *decision,
            element("details", element("summary", "The rule"), element("p", published.rule), class_="rule"),
        ),
    )
