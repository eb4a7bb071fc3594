"""The chapters of the report, in groups: one group for each kind of run, each chapter a function from evidence.

A run may be of several kinds at once, a sweep and a diagnosis. The page writes every group that the run belongs to and
then the provenance. A chapter whose rows are missing is left out; the provenance lists what those chapters had to say,
so that a reader learns what was not measured. A new kind of run is a new group in this list; no other group changes,
and the Markdown reads the same list.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from layerwise.report.claims.chapter import claims
from layerwise.report.diagnosis.chapters import DIAGNOSIS
from layerwise.report.evidence import Evidence
from layerwise.report.growth.chapters import GROWN
from layerwise.report.kind import Kind
from layerwise.report.kinds import KINDS
from layerwise.report.page.chapter import Chapter, Missing
from layerwise.report.page.group import ChapterGroup, Writer
from layerwise.report.page.markup import element
from layerwise.report.page.provenance import provenance
from layerwise.report.sweep.chapters import SWEEP
from layerwise.report.writers.html import chapter
from layerwise.report.writers.text import markdown_parts


def group_of(kind: Kind) -> ChapterGroup:
    """A kind that is data, in the form of those that are not yet."""
    first, *rest = (partial(_chapter, kind, at) for at in range(len(kind.sections)))
    return ChapterGroup(
        kind.name, (first, *((claims,) if kind.claims else ()), *rest),
        (lambda evidence: markdown_parts(kind, evidence.run),),
        present=lambda evidence: kind.is_of(evidence.run),
        tiles=lambda evidence: tuple(kind.tiles(evidence.run)),
        unfinished=lambda evidence: kind.unfinished(evidence.run),
        counts=kind.counts,
        opening=lambda evidence: kind.answer(evidence.run),
    )  # fmt: skip


def _chapter(kind: Kind, at: int, evidence: Evidence) -> Chapter:
    return chapter(kind, kind.sections[at], evidence.run)


GROUPS = (
    SWEEP, DIAGNOSIS, GROWN, *map(group_of, KINDS),
)  # fmt: skip


def present_groups(evidence: Evidence) -> tuple[ChapterGroup, ...]:
    """The kinds of run that this one is; a run without any rows is shown as the sweep it may become."""
    return tuple(group for group in GROUPS if group.present(evidence)) or (SWEEP,)


def written(evidence: Evidence) -> list[Chapter]:
    """Every chapter of every group that is present and has something to say, each once, and the provenance at the end.

    A run that has no rows at all keeps the first of its chapters, which says so.
    """
    writers: dict[Writer, None] = {}
    for group in present_groups(evidence):
        writers |= dict.fromkeys(group.chapters)
    by_anchor: dict[str, Chapter] = {}
    for write in writers:
        own = write(evidence).noted(evidence.data.notes)
        by_anchor.setdefault(own.anchor, own)
    chapters = list(by_anchor.values())
    kept = [chapter for chapter in chapters if not chapter.is_empty] or chapters[:1]
    absent = [chapter for chapter in chapters if chapter not in kept]
    return [*kept, _with_absent(provenance(evidence).noted(evidence.data.notes), absent)]


def _with_absent(last: Chapter, absent: Sequence[Chapter]) -> Chapter:
    """The provenance with what this run did not measure, a line for each chapter that is left out."""
    absences = {chapter.title: piece.text for chapter in absent for piece in chapter.body if isinstance(piece, Missing)}
    lines = (element("li", element("b", title), ": ", text) for title, text in absences.items())
    listed = element("div", element("h3", "Not in this run"), element("ul", *lines))
    return replace(last, body=(*last.body, listed)) if absences else last


__all__ = ["GROUPS", "Chapter", "ChapterGroup", "present_groups", "written"]
