"""The chapters of a sweep: many plans, what each does to the loss, and what it costs to run."""

from __future__ import annotations

from layerwise.report.claims.chapter import claims
from layerwise.report.evidence import Evidence
from layerwise.report.page.group import STOPPED, ChapterGroup
from layerwise.report.page.wording import NATS, counted
from layerwise.report.sweep.chapters.benchmarks import benchmarks
from layerwise.report.sweep.chapters.continuations import continuations
from layerwise.report.sweep.chapters.cost import cost
from layerwise.report.sweep.chapters.curves import degradation
from layerwise.report.sweep.chapters.findings import headline
from layerwise.report.sweep.chapters.gallery import gallery
from layerwise.report.sweep.chapters.importance import importance
from layerwise.report.sweep.chapters.loops import loops
from layerwise.report.sweep.chapters.plans import plans
from layerwise.report.sweep.chapters.similarity import similarity
from layerwise.report.sweep.chapters.tasks import tasks
from layerwise.report.sweep.chapters.zones import zones
from layerwise.report.sweep.findings import findings
from layerwise.report.sweep.tables import sweep_markdown
from layerwise.results.vocabulary import ORDER


def _tiles(evidence: Evidence) -> tuple[tuple[str, str], ...]:
    count = len(evidence.named_tasks) or len(evidence.tasks)
    return ((f"{len(evidence.records):,}", "plans"), (f"{count:,}", "tasks"))


def _unfinished(evidence: Evidence) -> str | None:
    """Plans of the run without a loss: an interrupted run says so before anything else."""
    task = evidence.main_task
    waiting = sum(task is None or evidence.effect(plan, task, "nll") is None for plan in evidence.records)
    if not waiting:
        return None
    return f"{waiting:,} of {counted(len(evidence.records), 'plan')} have no effect yet: {STOPPED}"


def _present(evidence: Evidence) -> bool:
    """A run with plans of its own; those by which a diagnosis asks about order, and the untouched model, are none."""
    return any(record.family not in {"identity", ORDER} for record in evidence.records.values())


def _opening(evidence: Evidence) -> str:
    """The answer of the first question that the run resolves, else of the first that it asks."""
    every = findings(evidence)
    answers = (*(each for each in every if each.state == "resolved"), *every)
    if answers:
        return f"{answers[0].text} {NATS}"
    if not evidence.records:
        return ""
    return f"Each plan below was run on the same text and compared with the model as trained. {NATS}"


SWEEP = ChapterGroup(
    "sweep",
    (
        headline,
        degradation,
        importance,
        claims,
        benchmarks,
        loops,
        cost,
        similarity,
        zones,
        gallery,
        tasks,
        continuations,
        plans,
    ),
    (sweep_markdown,),
    present=_present,
    tiles=_tiles,
    unfinished=_unfinished,
    counts=("documents", "tokens"),
    opening=_opening,
)
