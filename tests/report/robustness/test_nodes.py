"""The chapter of lost nodes where little of it was measured."""

from __future__ import annotations

from dataclasses import replace

from layerwise.report import Evidence
from layerwise.report.robustness.chapters.nodes import nodes
from report import robust


def test_rows_of_an_unknown_layout_draw_nothing_and_the_chapter_says_so() -> None:
    data = robust.without(robust.run(), "nodes")
    row = robust.row("nodes", "baseline", "4 rings 1 random", "accuracy_lost", 0.1, 0.02)
    chapter = nodes(Evidence.of(replace(data, scores=(*data.scores, row))))
    assert "No node was lost in this run" in str(chapter.body)
