"""The chapters of the report: those of every kind of run that a run belongs to, and the provenance.

A run may be of several kinds at once, a sweep and a search. The page writes the sections of every kind and then the
provenance. A section whose rows are missing is left out; the provenance lists what those had to say, so that a reader
learns what was not measured. A new kind of run is one line in `layerwise.report.kinds`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from layerwise.report.data import ReportData
from layerwise.report.kind import Kind
from layerwise.report.kinds import KINDS
from layerwise.report.kinds.sweep import SWEEP
from layerwise.report.page.provenance import provenance
from layerwise.report.text.markup import element
from layerwise.report.writers.chapter import Chapter, Missing
from layerwise.report.writers.claims import claims
from layerwise.report.writers.html import chapters


def present_kinds(data: ReportData) -> tuple[Kind, ...]:
    """The kinds of run that this one is; a run without any rows is shown as the sweep it may become."""
    return tuple(kind for kind in KINDS if kind.is_of(data)) or (SWEEP,)


def written(data: ReportData) -> list[Chapter]:
    """Every chapter of every kind that has something to say, each anchor once, and the provenance at the end.

    A run that has no rows at all keeps the first of its chapters, which says so.
    """
    by_anchor: dict[str, Chapter] = {}
    for kind in present_kinds(data):
        for chapter in _chapters(kind, data):
            by_anchor.setdefault(chapter.anchor, chapter.noted(data.notes))
    every = list(by_anchor.values())
    kept = [chapter for chapter in every if not chapter.is_empty] or every[:1]
    absent = [chapter for chapter in every if chapter not in kept]
    return [*kept, _with_absent(provenance(data).noted(data.notes), absent)]


def _chapters(kind: Kind, data: ReportData) -> Iterator[Chapter]:
    """The sections of a kind, and after the first of them what became of the published claims where it decides any."""
    first, *rest = chapters(kind, data)
    yield first
    if kind.claims:
        yield claims(data)
    yield from rest


def _with_absent(last: Chapter, absent: Sequence[Chapter]) -> Chapter:
    """The provenance with what this run did not measure, a line for each chapter that is left out."""
    absences = {chapter.title: piece.text for chapter in absent for piece in chapter.body if isinstance(piece, Missing)}
    lines = (element("li", element("b", title), ": ", text) for title, text in absences.items())
    listed = element("div", element("h3", "Not in this run"), element("ul", *lines))
    return replace(last, body=(*last.body, listed)) if absences else last
