"""Chapter 1: what was studied and what was found, each finding with its number and its interval."""

from __future__ import annotations

from layerwise.report.chapters.chapter import Chapter, lead, missing, note
from layerwise.report.data import Evidence
from layerwise.report.figures import half_depth_effects
from layerwise.report.headline import Finding, Number, findings
from layerwise.report.markup import Safe, element
from layerwise.report.picture import Choice, Picture
from layerwise.report.window import half_window, ranked

BADGES = {"resolved": "resolved", "unresolved": "not resolvable", "described": "no interval"}


def headline(evidence: Evidence) -> Chapter:
    """The findings, and beside them the strategies in order of harm."""
    found = findings(evidence)
    if not found:
        text = "No finding: the run has no effects yet, or it was interrupted before the first one was scored."
        return Chapter("headline", "What was found", "Findings", (missing(text),))
    answers = element("ol", *(_finding(finding) for finding in found), class_="findings")
    picture = _ranking(evidence)
    beside = (_beside(evidence, picture),) if picture else ()
    body = element("div", answers, *beside, class_="hero")
    return Chapter(
        "headline",
        "What was found",
        "Findings",
        (lead("Each answer is written from the rows below, and claims no more than its interval carries."), body),
        (picture,) if picture else (),
    )


def _finding(finding: Finding) -> Safe:
    pieces = (element("b", piece) if isinstance(piece, Number) else piece for piece in finding.answer)
    badge = element("span", BADGES[finding.state], class_=f"badge {finding.state}")
    return element("li", element("h3", finding.question, " ", badge), element("p", *pieces))


def _ranking(evidence: Evidence) -> Picture | None:
    window = half_window(evidence)
    rows = {task: ranked(evidence, window, task) for task in evidence.tasks} if window else {}
    shown = {task: points for task, points in rows.items() if points}
    if not shown:
        return None
    return Picture(
        "ranking",
        "Effect of each strategy at the window nearest to half the depth, with intervals",
        {(index,): half_depth_effects(evidence, points) for index, points in enumerate(shown.values())},
        (Choice("Task", tuple(shown)),),
    )


def _beside(evidence: Evidence, picture: Picture) -> Safe:
    window = half_window(evidence)
    affected = window.affected if window else 0
    return element(
        "aside",
        element("h3", f"{affected} of {evidence.depth} layers affected"),
        picture.html(),
        note("Dots are effects, lines their intervals; inside the grey band an effect would not be detected."),
    )
