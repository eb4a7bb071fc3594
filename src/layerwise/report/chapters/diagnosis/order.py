"""Whether order matters, task by task: the same layers in another order, against leaving them out."""

from __future__ import annotations

from layerwise.report.chapters.chapter import Chapter, card, lead, missing, note
from layerwise.report.curves import Point, curves
from layerwise.report.data import Evidence
from layerwise.report.diagnosis import ORDER
from layerwise.report.figures import order_or_absence
from layerwise.report.picture import Picture
from layerwise.report.window import distinct


def order(evidence: Evidence) -> Chapter:
    """A row a task: what the same window of layers costs in another order, reversed, and left out."""
    title, short = "Does order matter?", "Order"
    by_task = {task: _points(evidence, task) for task in (evidence.named_tasks or evidence.tasks)}
    measured = {task: points for task, points in by_task.items() if points}
    if not measured:
        return Chapter(ORDER, title, short, (missing("No layers were put into another order in this run (order)."),))
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
    return Chapter(ORDER, title, short, body, (picture,))


def _points(evidence: Evidence, task: str) -> dict[str, Point]:
    """Strategy to its point; a diagnosis moves one window only."""
    return distinct({curve.strategy: curve.points[-1] for curve in curves(evidence, ORDER, task) if curve.points})
