"""A sweep as tables: by task, by benchmark, by layer and by plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from layerwise.report.evidence import DELTA, Evidence
from layerwise.report.page.number_format import between, percent, probability, tidy, verdict
from layerwise.report.page.plain_markdown import answered
from layerwise.report.page.table import Table
from layerwise.report.page.wording import counted, label
from layerwise.report.sweep.findings import findings
from layerwise.report.sweep.layers import single_skips
from layerwise.report.sweep.window import half_window, ranked
from layerwise.results.rows import Score
from layerwise.results.vocabulary import BENCHMARK


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
    scores = evidence.run.rows.where(measure=BENCHMARK, against=None)
    metrics = list(dict.fromkeys(_metric(score) for score in scores))
    cells: dict[tuple[str, str], dict[str, str]] = {}
    for score in scores:
        shown = between(score.value, score.low, score.high)
        cells.setdefault((str(score.plan), score.task), {})[_metric(score)] = shown
    body = tuple((plan, task, *(cell.get(metric, "–") for metric in metrics)) for (plan, task), cell in cells.items())
    return Table(("plan", "benchmark", *(label(metric) for metric in metrics)), body, numeric_from=2)


def _metric(score: Score) -> str:
    return f"{score.condition} {score.metric}" if score.condition else score.metric


def _sizes(evidence: Evidence, task: str) -> Sequence[str]:
    """The most documents and tokens that any effect on the task was measured on."""
    scores = [score for plan in evidence.records if (score := evidence.effect(plan, task, DELTA)) is not None]
    documents = [score.documents for score in scores if score.documents is not None]
    tokens = [score.tokens for score in scores if score.tokens is not None]
    return [f"{max(counts):,}" if counts else "–" for counts in (documents, tokens)]


def _untouched(evidence: Evidence, task: str) -> Sequence[str]:
    nll, exact = evidence.baseline(task, "nll"), evidence.baseline(task, "exact_match")
    return ["–" if nll is None else tidy(nll), "–" if exact is None else percent(exact)]


def sweep_markdown(evidence: Evidence) -> Iterator[str]:
    """The findings, and the tables of tasks, layers, benchmarks and plans."""
    yield answered(findings(evidence)) or "No finding: the run has no effects yet."
    window = half_window(evidence)
    yield task_rows(evidence).section(f"Tasks, {counted(window.affected, 'layer')} affected" if window else "Tasks")
    yield layer_rows(evidence).section("Layers")
    yield benchmark_rows(evidence).section("Benchmarks")
    yield plan_rows(evidence).section("Plans")


def layer_rows(evidence: Evidence) -> Table:
    """A row a layer: what dropping it alone costs on the main task."""
    task = evidence.main_task
    plans = single_skips(evidence) if task else {}
    body = []
    for layer, plan in sorted(plans.items()):
        score = evidence.effect(plan, task, DELTA) if task else None
        if score is not None:
            adjusted = probability(score.p_adjusted)
            body.append((str(layer), _effect(score), adjusted, verdict(score, evidence.data.level)))
    return Table(("layer dropped", "Δ NLL (nats per token)", "adjusted p", "verdict"), tuple(body))


def plan_rows(evidence: Evidence) -> Table:
    """A row a plan: what it is, what it costs, and what it does on the main task."""
    head = ("plan", "strategy", "affected", "evaluations", "stages", "Δ NLL (nats per token)", "adjusted p", "verdict")
    body = []
    for record in evidence.records.values():
        score = evidence.effect(record.plan, evidence.main_task) if evidence.main_task else None
        p = probability(None if score is None else score.p_adjusted)
        costs = (str(record.affected), str(record.evaluations), str(record.stages))
        body.append((record.plan, label(record.strategy), *costs, _effect(score), p, evidence.verdict(record.plan)))
    return Table(head, tuple(body))


def _effect(score: Score | None) -> str:
    return "–" if score is None else between(score.value, score.low, score.high, signed=True)
