"""What became of the published claims, paper by paper: the chapter to read when only one is read."""

from __future__ import annotations

from collections.abc import Sequence

from layerwise.report.claims import Claim, Judged, Published, Verdict, judged
from layerwise.report.claims.claim import BADGES
from layerwise.report.data import ReportData
from layerwise.report.text.markup import Safe, element
from layerwise.report.text.table import Table
from layerwise.report.text.wording import counted, listed
from layerwise.report.writers.chapter import Chapter, Heading, folded, lead, note
from layerwise.results.identity import model_name

HEADING = Heading("claims", "What became of the claims", "Claims")
HEAD = ("claim", "verdict", "why", "this run", "the paper")
NO_NUMBER = "–"


def claims(data: ReportData) -> Chapter:
    """How many claims got which verdict; a table for each paper, a claim a row, is folded, and so are the rules."""
    # The paper of which most is measured comes first: it is what the run was made for.
    papers = sorted(judged(data), key=lambda each: -each.count)
    if not papers:
        return HEADING.missing("No published claim can be decided from these rows.")
    model = data.manifest.get("model")
    name = model_name(str(model)) if model else "this model"
    decided = [claim for each in papers for claim in each.measured]
    missing = [claim.name for each in papers for claim in each.claims if claim not in each.measured]
    body = (
        lead(
            f"{counted(len(decided), 'claim')} of the literature, put to {name}: {_verdicts(decided)}. A rule stated"
            " beforehand decides each."
        ),
        *(_paper(each) for each in papers),
        *((note(f"Not measured here: {'; '.join(missing)}."),) if missing else ()),
    )
    return HEADING.chapter(body)


def _verdicts(decided: Sequence[Claim]) -> str:
    """How many claims got which verdict, in words."""
    counts = {verdict: sum(claim.verdict == verdict for claim in decided) for verdict in BADGES}
    return listed([f"{count} {verdict}" for verdict, count in counts.items() if count])


def _paper(each: Judged) -> Safe:
    rows = tuple(
        (claim.name, badge(claim.verdict), claim.why, claim.figures, claim.published.number or NO_NUMBER)
        for claim in each.measured
    )
    details = element("ol", *(_claim(claim) for claim in each.measured), class_="claims")
    return folded(
        f"{each.paper.title}: {_verdicts(each.measured)}",
        note(each.paper.citation),
        element("div", Table(HEAD, rows, numeric_from=len(HEAD)).html(), class_="verdicts"),
        folded("What was published, the rules, and what could have been seen", details),
    )


def badge(verdict: Verdict) -> Safe:
    """A verdict as it is shown."""
    return element("span", verdict, class_=f"badge {BADGES[verdict]}")


def _claim(claim: Claim) -> Safe:
    return card(claim.published, *((element("p", claim.power, class_="why"),) if claim.power else ()))


def card(published: Published, *decision: Safe) -> Safe:
    """An item of a list of claims: the claim as it was published, the `decision`, and the rule that was followed."""
    prose = published.prose
    return element(
        "li",
        element(
            "div",
            element("h4", prose.name),
            element("p", prose.statement, " ", element("cite", prose.citation), class_="published"),
        ),
        element(
            "div",
            *decision,
            element("details", element("summary", "The rule"), element("p", prose.rule), class_="rule"),
        ),
    )
