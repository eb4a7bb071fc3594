"""What was studied and what was found, each finding with its number and its interval."""

from __future__ import annotations

from layerwise.report.evidence import Evidence
from layerwise.report.figures import ranking
from layerwise.report.page.answers import answer
from layerwise.report.page.chapter import Chapter, Heading, lead, note
from layerwise.report.page.figure_slot import Choice, Picture
from layerwise.report.page.markup import Safe, element
from layerwise.report.page.wiring import wiring
from layerwise.report.page.wording import label
from layerwise.report.sweep.findings import findings
from layerwise.report.sweep.window import LayerWindow, half_window, ranked

STAIRCASE = (
    "Each picture is a plan. Its rows are the steps, from top to bottom; a step reads the coloured columns, and the"
    " colour is the layer that wrote them. As trained every step reads all that was written before: a staircase."
)
HEADING = Heading("headline", "What was found", "Findings")


def headline(evidence: Evidence) -> Chapter:
    """The findings, and beside them the strategies in order of harm."""
    results = findings(evidence)
    if not results:
        return HEADING.missing(
            "No finding: the run has no effects yet, or it was interrupted before the first one was scored."
        )
    answers = element("ol", *(answer(finding) for finding in results), class_="findings")
    window = half_window(evidence)
    picture = _ranking(evidence, window) if window else None
    beside = (_beside(evidence, window, picture),) if window and picture else ()
    body = element("div", answers, *beside, class_="hero")
    written = lead("Each answer is written from the rows below, and claims no more than its interval carries.")
    return HEADING.chapter((written, body), (picture,) if picture else ())


def _ranking(evidence: Evidence, window: LayerWindow) -> Picture | None:
    rows = {task: ranked(evidence, window, task) for task in evidence.tasks}
    shown = {task: points for task, points in rows.items() if points}
    if not shown:
        return None
    return Picture(
        "ranking",
        "Effect of each strategy at the window nearest to half the depth, with intervals",
        {(index,): ranking(evidence, points) for index, points in enumerate(shown.values())},
        (Choice("Task", tuple(shown)),),
    )


def _beside(evidence: Evidence, window: LayerWindow, picture: Picture) -> Safe:
    return element(
        "aside",
        element("h4", f"{window.affected} of {evidence.depth} layers affected"),
        picture.controls(),
        picture.html(),
        note(
            "Dots are effects, lines their intervals. The grey band is the smallest detectable effect: what this text"
            " finds in four cases of five. It says how finely the run can see and decides nothing: an effect whose line"
            " is clear of zero is distinguished from zero, within the band too. Strategies are compared pair by pair."
        ),
        element("h4", "What each strategy does"),
        element("div", *_examples(evidence, window), class_="examples"),
        note(STAIRCASE),
        class_="card",
    )


def _examples(evidence: Evidence, window: LayerWindow) -> list[Safe]:
    """One wiring for each strategy at the window, in the order of the figure above them."""
    rows = ranked(evidence, window, evidence.tasks[0]) if evidence.tasks else ()
    return [
        element("figure", wiring(plan, evidence.depth), element("figcaption", label(strategy)))
        for strategy, point in rows
        if (plan := evidence.schedules.get(point.records[0].plan)) is not None
    ]
