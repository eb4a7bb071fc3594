"""Benchmarks by the number of affected layers, on the scale from 0, chance, to 1, the model as trained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from layerwise.plan import Plan
from layerwise.report.evidence import ALL_TASKS, Evidence
from layerwise.report.page.number_format import between, tidy
from layerwise.report.page.table import Table
from layerwise.report.page.wording import label
from layerwise.report.sweep.curves import Curve, scored_curves
from layerwise.results.rows import Score, main_metric
from layerwise.results.selection import Rows
from layerwise.results.vocabulary import BENCHMARK, CHANCE, CONTRAST, NORMALISED

MIDDLES = ("mean", "median")
"""What is taken over the benchmarks; the paper draws the median, which hides the one that collapsed."""


@dataclass(frozen=True, slots=True)
class BenchmarkScores:
    """The rows of benchmarks, and the metric that each benchmark is judged by."""

    rows: Rows
    metrics: Mapping[str, str]

    @classmethod
    def of(cls, evidence: Evidence) -> BenchmarkScores:
        """Look the rows of a run up once."""
        rows = evidence.run.rows.where(measure=BENCHMARK)
        scaled = rows.where(condition=NORMALISED).by("task").items()
        by_task = {task: main_metric(own.axis("metric")) for task, own in scaled if task != ALL_TASKS}
        metrics = {task: main for task, main in by_task.items() if main is not None}
        return cls(rows, metrics)

    def curves(self, evidence: Evidence, family: str, task: str, metric: str) -> tuple[Curve, ...]:
        """The curves of a family on the scale, of one benchmark or, as task "all", of a middle of them."""
        return scored_curves(
            evidence, family, lambda plan: self.rows.one(plan=plan, task=task, metric=metric, condition=NORMALISED)
        )


def benchmark_falls(evidence: Evidence, scores: BenchmarkScores) -> Table:
    """A row for each benchmark: what guessing and the model as trained score, and how fast each strategy lets it fall.

    Falls are of the scale, for each tenth of the depth that is affected.
    """
    falls = {(row.condition, row.task): row for row in evidence.rows.where(measure=CONTRAST, subject="benchmark_fall")}
    strategies = [name for name in evidence.strategies if (name, ALL_TASKS) in falls]
    tasks = [*scores.metrics, *([ALL_TASKS] if falls else [])]
    head = ("benchmark", "chance", "as trained", *(f"fall, {label(name)}" for name in strategies))
    body = [
        (
            "mean" if task == ALL_TASKS else task,
            *_ends(evidence, scores, task),
            *(_shown(falls.get((name, task))) for name in strategies),
        )
        for task in tasks
    ]
    return Table(head, tuple(body))


def _ends(evidence: Evidence, scores: BenchmarkScores, task: str) -> tuple[str, str]:
    """The two ends of the scale of a benchmark: guessing, and the model as trained by its metric."""
    if task == ALL_TASKS:
        return "–", "–"
    chance = scores.rows.one(task=task, against=CHANCE)
    full = (
        scores.rows.one(plan=str(Plan.identity(evidence.depth)), task=task, metric=scores.metrics[task], condition=None)
        if evidence.depth
        else None
    )
    return "–" if chance is None else tidy(chance.value), _shown(full)


def _shown(score: Score | None) -> str:
    return "–" if score is None else between(score.value, score.low, score.high)
