"""The chapters of a growth run: the verdict, what it rests on, the schedules, and whether the test was a fair one.

A run of `layerwise train growth` has the same chapters as a study: where one schedule was trained alone, those that
compare say so in a line.
"""

from __future__ import annotations

from layerwise.report.chapters.group import Group
from layerwise.report.chapters.growth.accounting import accounting
from layerwise.report.chapters.growth.courses import courses_by_cost
from layerwise.report.chapters.growth.differences import differences
from layerwise.report.chapters.growth.rates import rates
from layerwise.report.chapters.growth.timetables import timetables
from layerwise.report.chapters.growth.verdict import verdict
from layerwise.report.data import Evidence
from layerwise.report.growth import TRAINING
from layerwise.report.wording import counted, listed


def _tiles(evidence: Evidence) -> tuple[tuple[str, str], ...]:
    found = evidence.growth
    seeds = max((len(found.seeds[arm]) for arm in found.arms), default=0)
    return ((f"{len(found.arms):,}", "arms"), *(((f"{seeds:,}", "seeds"),) if seeds else ()))


def _unfinished(evidence: Evidence) -> str | None:
    """Trainings that were begun and have no end."""
    found = evidence.growth
    begun = {*found.told(TRAINING, "train_loss"), *found.told(TRAINING, "validation_loss")}
    waiting = sorted(begun - set(found.subjects(TRAINING, "steps")))
    if not waiting:
        return None
    verb = "is" if len(waiting) == 1 else "are"
    return (
        f"{counted(len(waiting), 'training')} ({listed(waiting)}) {verb} not complete: the run was interrupted, or is"
        " still going. Resume it and write the report again."
    )


GROWN = Group(
    "growth",
    (verdict, courses_by_cost, differences, timetables, rates, accounting),
    present=lambda evidence: bool(evidence.growth.measures),
    tiles=_tiles,
    unfinished=_unfinished,
    counts=(),
)
