"""Task by task: order against absence, and the benchmarks."""

from __future__ import annotations

from layerwise.report.evidence import Evidence
from layerwise.report.figures import order_or_absence
from layerwise.report.page.chapter import Chapter, Heading, card, lead, note
from layerwise.report.page.figure_slot import Picture
from layerwise.report.page.markup import Safe, element
from layerwise.report.sweep.findings import ABSENCE
from layerwise.report.sweep.tables import benchmark_rows, task_rows
from layerwise.report.sweep.window import half_window, on_tasks, order_strategy

HEADING = Heading("tasks", "Task by task", "Tasks")


def tasks(evidence: Evidence) -> Chapter:
    """What each task scores untouched, what order and absence do to it, and the benchmarks where they were run."""
    rows, benchmarks, picture = task_rows(evidence), benchmark_rows(evidence), _order(evidence)
    if not rows.body and not benchmarks.body:
        return HEADING.missing("No task and no benchmark was measured.")
    body: list[Safe] = [lead("One average hides collapse: here every task stands alone.")]
    pictures = []
    if rows.body:
        body += [element("h3", "The tasks"), rows.html()]
    if picture is not None:
        window = half_window(evidence)
        body += [
            element("h3", f"Order against absence, {window.affected if window else 0} layers"),
            card(None, picture.html()),
            note("Where a changed order stands right of skip, the wrong order does more harm than no layers at all."),
        ]
        pictures.append(picture)
    if benchmarks.body:
        body += [element("h3", "Benchmarks"), benchmarks.html()]
    return HEADING.chapter(tuple(body), tuple(pictures))


def _order(evidence: Evidence) -> Picture | None:
    window = half_window(evidence)
    strategy = order_strategy(evidence, window) if window else None
    if window is None or strategy is None or not evidence.named_tasks:
        return None
    shown = [ABSENCE, strategy, *(["reverse"] if strategy != "reverse" else [])]
    points_of = {name: on_tasks(evidence, window, name) for name in shown}
    by_task = {
        task: {name: points[task] for name, points in points_of.items() if task in points}
        for task in evidence.named_tasks
    }
    measured = {task: points for task, points in by_task.items() if points}
    if not measured:
        return None
    return Picture("order", "Effect of order and of absence, task by task", {(): order_or_absence(evidence, measured)})
