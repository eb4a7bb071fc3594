"""The chapters of a comparison, in reading order."""

from __future__ import annotations

from layerwise.report.comparison.chapters.claims import claims
from layerwise.report.comparison.chapters.curves import curves
from layerwise.report.comparison.chapters.layers import layers
from layerwise.report.comparison.chapters.models import models
from layerwise.report.comparison.chapters.runs import runs
from layerwise.report.comparison.chapters.similarity import similarity
from layerwise.report.comparison.chapters.zones import zones
from layerwise.report.comparison.compared import Compared
from layerwise.report.comparison.verdicts import ByPaper
from layerwise.report.page.chapter import Chapter


def chapters(compared: Compared, by_paper: ByPaper) -> list[Chapter]:
    """Every chapter that has something to show; the last one says what the others lacked, and how to read them all."""
    written = [
        models(compared),
        claims(compared, by_paper),
        *(each(compared) for each in (curves, layers, similarity)),
        zones(compared, by_paper),
    ]
    absent = [chapter for chapter in written if chapter.is_empty]
    return [*(chapter for chapter in written if not chapter.is_empty), runs(compared, absent)]
