"""Whether order matters, task by task: the same layers in another order, against leaving them out."""

from __future__ import annotations

from layerwise.report.diagnosis.lookup import ORDER
from layerwise.report.evidence import Evidence
from layerwise.report.figures import order_or_absence
from layerwise.report.page.chapter import Chapter, Heading, card, lead, note
from layerwise.report.page.figure_slot import Picture
from layerwise.report.sweep.curves import Point, curves
from layerwise.report.sweep.window import distinct

HEADING = Heading(ORDER, "Does order matter?", "Order")


def order(evidence: Evidence) -> Chapter:
    """A row a task: what the same window of layers costs in another order, reversed, and left out."""
    by_task = {task: _points(evidence, task) for task in (evidence.named_tasks or evidence.tasks)}
    measured = {task: points for task, points in by_task.items() if points}
    if not measured:
        return HEADING.missing("No layers were put into another order in this run (order).")
    affected = max(point.affected for points in measured.values() for point in points.values())
    picture = Picture("diagnosis-order", "Effect of order and of absence", {(): order_or_absence(evidence, measured)})
    body = (
        lead(f"{affected} of {evidence.depth} layers in another order, and the same ones left out."),
        card(None, picture.html()),
        note(
            "A task that loses more by order than another may just be fragile: it then loses more by absence too."
            " Random orders are a mean of several draws, its interval holds their differences."
        ),
    )
    return HEADING.chapter(body, (picture,))


def _points(evidence: Evidence, task: str) -> dict[str, Point]:
    """Strategy to its point; a diagnosis moves one window only."""
    return distinct({curve.strategy: curve.points[-1] for curve in curves(evidence, ORDER, task) if curve.points})
