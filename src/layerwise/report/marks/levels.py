"""Levels side by side in rows: what was measured with its interval, and what the nulls give."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from layerwise.report.data import ReportData
from layerwise.report.figures.figure import Figure
from layerwise.report.figures.levels import Level, levels
from layerwise.report.marks.mark import Mark
from layerwise.report.text.wording import null_name
from layerwise.results.rows import Score
from layerwise.results.selection import Rows


@dataclass(frozen=True, kw_only=True)
class Levels(Mark):
    """A row for each value of the column `y`, in it a mark for each series; rows `against` something are nulls, grey.

    Values below `floor` are drawn at it. There is no picture where there are only nulls.
    """

    y: str = "part"
    floor: float | None = None

    def figure(self, rows: Rows, data: ReportData, slots: Mapping[str, int], all_rows: Rows) -> Figure | None:
        """The levels of the rows."""
        measured = rows.where(against=None)
        if not measured:
            return None
        groups = measured.by(self.series) if self.series else {"measured": measured}
        return levels(
            [
                *(
                    Level(null_name(null), self._row_of(own), slot, null=True)
                    for slot, (null, own) in enumerate(rows.by("against").items())
                ),
                *(Level(self.words(name), self._row_of(own), slots.get(str(name), 0)) for name, own in groups.items()),
            ],
            across=self.show.axis, floor=self.floor, reference=self.show.reference, span=self.show.span,
        )  # fmt: skip

    def _row_of(self, rows: Rows) -> dict[Any, Score]:
        return {getattr(row, self.y): self.show.shown(row) for row in rows}
