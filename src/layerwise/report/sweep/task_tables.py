"""The rows of the task tables, shared by the page and the Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from layerwise.report.evidence import DELTA, Evidence
from layerwise.report.page.number_format import between, percent, tidy
from layerwise.report.page.table import Table
from layerwise.report.page.wording import label
from layerwise.report.sweep.benchmark_curves import CHANCE
from layerwise.report.sweep.window import half_window, ranked


def task_rows(evidence: Evidence) -> Table:
    """A row a task: its documents and tokens, the untouched model, and every strategy at the half-depth window."""
    window = half_window(evidence)
    by_task = {task: dict(ranked(evidence, window, task)) if window else {} for task in evidence.tasks}
    strategies = list(dict.fromkeys(name for points in by_task.values() for name in points))
    head = ("task", "documents", "tokens", "NLL", "exact match", *(f"Δ {label(name)}" for name in strategies))
    body = []
    for task in evidence.tasks:
        points = by_task[task]
        effects = [
            between(points[name].value, points[name].low, points[name].high, signed=True) if name in points else "–"
            for name in strategies
        ]
        body.append((task, *_sizes(evidence, task), *_untouched(evidence, task), *effects))
    return Table(head, tuple(body))


def benchmark_rows(evidence: Evidence) -> Table:
    """A row for each plan and benchmark: every metric with its interval."""
    scores = [score for score in evidence.scores("benchmark") if score.subject != CHANCE]
    metrics = list(dict.fromkeys(score.metric for score in scores))
    cells: dict[tuple[str, str], dict[str, str]] = {}
    for score in scores:
        shown = between(score.value, score.low, score.high)
        cells.setdefault((score.subject, score.task), {})[score.metric] = shown
    body = tuple((plan, task, *(cell.get(metric, "–") for metric in metrics)) for (plan, task), cell in cells.items())
    return Table(("plan", "benchmark", *(label(metric) for metric in metrics)), body, numeric_from=2)


def _sizes(evidence: Evidence, task: str) -> Sequence[str]:
    """The most documents and tokens that any effect on the task was measured on."""
    scores = [score for plan in evidence.records if (score := evidence.effect(plan, task, DELTA)) is not None]
    documents = [score.documents for score in scores if score.documents is not None]
    tokens = [score.tokens for score in scores if score.tokens is not None]
    return [f"{max(counts):,}" if counts else "–" for counts in (documents, tokens)]


def _untouched(evidence: Evidence, task: str) -> Sequence[str]:
    nll, exact = evidence.baseline(task, "nll"), evidence.baseline(task, "exact_match")
    return ["–" if nll is None else tidy(nll), "–" if exact is None else percent(exact)]
