"""Dots in rows, one lane for each series: what was measured with its interval, its seeds as faint dots."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from layerwise.report.data import ReportData
from layerwise.report.figures import dot_plot
from layerwise.report.figures.figure import Figure
from layerwise.report.figures.strip_plot import Strip, strips
from layerwise.report.marks.mark import Mark
from layerwise.results.rows import Score
from layerwise.results.selection import PRESENT, Rows


@dataclass(frozen=True, kw_only=True)
class Dots(Mark):
    """A row for each value of the column `y`, in it a lane for each series.

    Rows in which the column `faint` is not empty are single seeds or draws, shown as faint dots behind the others; with
    `swarm` each row of the figure is a swarm of all its draws with their median, and the rows without are its mark.
    Rows that are `against` the value `chance` are a short dotted line in their row of the figure. `from_zero` keeps
    zero on the axis. `rows_named` fixes which rows the figure has; `allowed` is a grey band through all of them, or
    says it of the rows.
    """

    y: str = "task"
    faint: str = "seed"
    swarm: bool = False
    mark: str = ""
    chance: str = ""
    from_zero: bool = False
    allowed: tuple[float, float] | Callable[[Rows], tuple[float, float] | None] | None = None
    row_words: Callable[[Any], str] = str
    rows_named: Callable[[ReportData], Sequence[str]] | None = None

    def figure(self, rows: Rows, data: ReportData, slots: Mapping[str, int], all_rows: Rows) -> Figure | None:
        """The dots of the rows, on the axis that `show` fixes, or of all of them."""
        levels = rows.where(against=self.chance) if self.chance else Rows()
        rows = rows.where(against=None) if self.chance else rows
        whole, single = rows.where(**{self.faint: None}), rows.where(**{self.faint: PRESENT})
        if self.swarm:
            return self._swarms(whole, single, slots)
        names = [str(name) for name in rows.axis(self.series)] if self.series else [""]
        arms = []
        for name in names:
            own = whole.where(**{self.series: name}) if self.series else whole
            faint = single.where(**{self.series: name}) if self.series else single
            cells = {self._row(row): self.show.shown(row) for row in own}
            seeds: dict[str, list[Score]] = {}
            for row in faint:
                seeds.setdefault(self._row(row), []).append(self.show.shown(row))
            arms.append(dot_plot.DotArm(self.words(name) if name else self.title, slots.get(name, 0), cells, seeds))
        return dot_plot.dots(
            arms, across=self.show.axis, reference=self.show.reference, from_zero=self.from_zero,
            signed=self.show.signed, span=self.show.span,
            allowed=self.allowed(rows) if callable(self.allowed) else self.allowed,
            chance={self._row(row): self.show.shown(row).value for row in levels},
            rows=None if self.rows_named is None else self.rows_named(data),
        )  # fmt: skip

    def _swarms(self, whole: Rows, single: Rows, slots: Mapping[str, int]) -> Figure:
        marks = {self._row(row): self.show.shown(row) for row in whole}
        drawn = [
            Strip(
                self.row_words(name),
                {f"{self.faint} {getattr(row, self.faint)}": self.show.shown(row).value for row in rows},
                slots.get(self.series_of(rows[0]), 0), marks.get(self.row_words(name)),
            )
            for name, rows in single.by(self.y).items()
        ]  # fmt: skip
        return strips(
            drawn, across=self.show.axis, reference=self.show.reference, mark=self.mark, span=self.show.span
        )  # fmt: skip

    def _row(self, row: Score) -> str:
        return self.row_words(getattr(row, self.y))
