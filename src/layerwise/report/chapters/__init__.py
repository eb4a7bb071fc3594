"""The chapters of the report, in groups: one group for each kind of run, each chapter a function from evidence.

A run may be of several kinds at once, a sweep and a diagnosis. The page writes every group that the run belongs to and
then the provenance. A chapter whose rows are missing says so in one line and is never left out, so that a reader learns
what was not measured. A new kind of run is a new group in this list; no other group changes.
"""

from __future__ import annotations

from layerwise.report.chapters.chapter import Chapter
from layerwise.report.chapters.diagnosis import DIAGNOSIS
from layerwise.report.chapters.group import Group, Writer
from layerwise.report.chapters.growth import GROWN
from layerwise.report.chapters.pretraining import EVALUATED, PRETRAINED, STUDIED, WIRED
from layerwise.report.chapters.provenance import provenance
from layerwise.report.chapters.robustness import ROBUSTNESS, TRAINED
from layerwise.report.chapters.sweep import SWEEP
from layerwise.report.data import Evidence

GROUPS = (SWEEP, DIAGNOSIS, ROBUSTNESS, TRAINED, GROWN, STUDIED, PRETRAINED, EVALUATED, WIRED)


def present_groups(evidence: Evidence) -> tuple[Group, ...]:
    """The kinds of run that this one is; a run without any rows is shown as the sweep it may become."""
    return tuple(group for group in GROUPS if group.present(evidence)) or (SWEEP,)


def written(evidence: Evidence) -> list[Chapter]:
    """Every chapter of every group that is present, each once, and the provenance at the end."""
    writers: dict[Writer, None] = {}
    for group in present_groups(evidence):
        writers |= dict.fromkeys(group.chapters)
    return [write(evidence).noted(evidence.data.notes) for write in (*writers, provenance)]


__all__ = ["GROUPS", "Chapter", "Group", "present_groups", "written"]
