"""The chapters of a sweep: many plans, what each does to the loss, and what it costs to run."""

from __future__ import annotations

from layerwise.report.chapters.claims import claims
from layerwise.report.chapters.group import Group
from layerwise.report.chapters.sweep.cost import cost
from layerwise.report.chapters.sweep.curves import degradation
from layerwise.report.chapters.sweep.gallery import gallery
from layerwise.report.chapters.sweep.headline import headline
from layerwise.report.chapters.sweep.importance import importance
from layerwise.report.chapters.sweep.plans import plans
from layerwise.report.chapters.sweep.similarity import similarity
from layerwise.report.chapters.sweep.tasks import tasks
from layerwise.report.data import Evidence
from layerwise.report.diagnosis import ORDER
from layerwise.report.wording import NATS, counted


def _tiles(evidence: Evidence) -> tuple[tuple[str, str], ...]:
    count = len(evidence.named_tasks) or len(evidence.tasks)
    return ((f"{len(evidence.records):,}", "plans"), (f"{count:,}", "tasks"))


def _unfinished(evidence: Evidence) -> str | None:
    """Plans of the run without a loss: an interrupted run says so before anything else."""
    task = evidence.main_task
    waiting = sum(task is None or evidence.effect(plan, task, "nll") is None for plan in evidence.records)
    if not waiting:
        return None
    return (
        f"{waiting:,} of {counted(len(evidence.records), 'plan')} have no effect yet: the run was interrupted, or is"
        " still going. Resume it and write the report again."
    )


def _present(evidence: Evidence) -> bool:
    """A run with plans of its own; those by which a diagnosis asks about order, and the untouched model, are none."""
    return any(record.family not in {"identity", ORDER} for record in evidence.records.values())


def _opening(evidence: Evidence) -> str:
    return (
        "What happens when the layers of this model run in another order, side by side, again, or not at all? Each plan"
        f" below was run on the same text and compared with the model as trained. {NATS}"
        if evidence.records
        else ""
    )


SWEEP = Group(
    "sweep",
    (headline, claims, degradation, cost, importance, similarity, gallery, tasks, plans),
    present=_present,
    tiles=_tiles,
    unfinished=_unfinished,
    opening=_opening,
)
