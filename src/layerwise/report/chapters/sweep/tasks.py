"""Task by task: order against absence, and the benchmarks."""

from __future__ import annotations

from layerwise.report.chapters.chapter import Chapter, card, lead, missing, note
from layerwise.report.data import Evidence
from layerwise.report.figures import order_or_absence
from layerwise.report.headline import ABSENCE
from layerwise.report.markup import Safe, element
from layerwise.report.picture import Picture
from layerwise.report.table import simple_table
from layerwise.report.tasks import benchmark_rows, task_rows
from layerwise.report.window import half_window, on_tasks, order_strategy


def tasks(evidence: Evidence) -> Chapter:
    """What each task scores untouched, what order and absence do to it, and the benchmarks where they were run."""
    title, short = "Task by task", "Tasks"
    rows, benchmarks, picture = task_rows(evidence), benchmark_rows(evidence), _order(evidence)
    if not rows.body and not benchmarks.body:
        return Chapter("tasks", title, short, (missing("No task and no benchmark was measured."),))
    body: list[Safe] = [lead("One average hides collapse: here every task stands alone.")]
    pictures = []
    if rows.body:
        body += [element("h3", "The tasks"), simple_table(rows.head, rows.body)]
    if picture is not None:
        window = half_window(evidence)
        body += [
            element("h3", f"Order against absence, {window.affected if window else 0} layers"),
            card(None, picture.html()),
            note("Where a changed order stands right of skip, the wrong order does more harm than no layers at all."),
        ]
        pictures.append(picture)
    if benchmarks.body:
        body += [element("h3", "Benchmarks"), simple_table(benchmarks.head, benchmarks.body, numeric_from=2)]
    return Chapter("tasks", title, short, tuple(body), tuple(pictures))


def _order(evidence: Evidence) -> Picture | None:
    window = half_window(evidence)
    strategy = order_strategy(evidence, window) if window else None
    if window is None or strategy is None or not evidence.named_tasks:
        return None
    shown = [ABSENCE, strategy, *(["reverse"] if strategy != "reverse" else [])]
    found = {name: on_tasks(evidence, window, name) for name in shown}
    by_task = {
        task: {name: points[task] for name, points in found.items() if task in points} for task in evidence.named_tasks
    }
    measured = {task: points for task, points in by_task.items() if points}
    if not measured:
        return None
    return Picture("order", "Effect of order and of absence, task by task", {(): order_or_absence(evidence, measured)})
