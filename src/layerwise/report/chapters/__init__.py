"""The chapters of the report, in reading order. Each is a function from evidence to a `Chapter`.

A chapter whose rows are missing says so in one line and is never left out, so that a reader learns what was not
measured.
"""

from __future__ import annotations

from layerwise.report.chapters.chapter import Chapter
from layerwise.report.chapters.cost import cost
from layerwise.report.chapters.curves import degradation
from layerwise.report.chapters.gallery import gallery
from layerwise.report.chapters.headline import headline
from layerwise.report.chapters.importance import importance
from layerwise.report.chapters.plans import plans
from layerwise.report.chapters.provenance import provenance
from layerwise.report.chapters.similarity import similarity
from layerwise.report.chapters.tasks import tasks

CHAPTERS = (headline, degradation, cost, importance, similarity, gallery, tasks, plans, provenance)

__all__ = ["CHAPTERS", "Chapter"]
