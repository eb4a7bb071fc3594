"""Lines along an axis with their intervals as ribbons, over the bands of their nulls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from layerwise.report.data import ReportData
from layerwise.report.figures.frame import Figure
from layerwise.report.figures.lines import Band, Line, common_span, hover_text, lined
from layerwise.report.marks.mark import Mark
from layerwise.results.rows import Score
from layerwise.results.selection import Rows


@dataclass(frozen=True, kw_only=True)
class Lines(Mark):
    """Each series as a line along the numeric column `x`, its intervals as a ribbon.

    `across` is the title of the axis and `at` what a position is called in the hover text, with `{}` for it. Rows
    that are `against` something are nulls: with `nulls` each is a grey band, named by it; without, they are no
    part of the figure. `hollow` says which points are open. `sizes` is a logarithmic axis, `percent` one from nothing
    to all, `reach` fixes its ends. With `named` the lines are named above the figure. Rows in which the column `faint`
    is not empty are single draws, shown as faint dots behind their line.
    """

    x: str = "layer"
    across: str = "layer"
    at: str = "layer {}"
    nulls: Callable[[str], str] | None = None
    hollow: Callable[[Score], bool] = lambda row: False
    sizes: bool = False
    percent: bool = False
    reach: tuple[float, float] | None = None
    named: bool = False
    faint: str = ""
    nats: bool = False

    def figure(self, rows: Rows, data: ReportData, slots: Mapping[str, int], all_rows: Rows) -> Figure | None:
        """The lines of the rows; with `each`, or a choice of metric, on the vertical range of all of them."""
        own = rows if self.nulls is None else rows.where(against=None)
        groups = own.by(self.series) if self.series else {"": own}
        lines = [
            Line(
                self.words(name) if name else self.title,
                self._positions(group.where(**{self.faint: None}) if self.faint else group), slots.get(str(name), 0),
                frozenset(getattr(row, self.x) for row in group if self.hollow(row)),
                tuple((getattr(row, self.x), self.show.shown(row).value) for row in group
                      if self.faint and getattr(row, self.faint) is not None),
            )
            for name, group in groups.items()
        ]  # fmt: skip
        named = self.nulls
        nulls = rows.by("against").items() if named is not None else ()
        bands = [Band(named(name), self._positions(each)) for name, each in nulls] if named is not None else []
        if not any(line.rows for line in lines):
            return None
        shared = self.each or set(self.apart) & set(self.choices.values())
        span = self.show.span or (common_span([self._scaled(all_rows)]) if shared else None)
        return lined(
            lines, bands, across=self.across, upwards=self.show.axis, height=self.height or 340, span=span,
            describe=hover_text(self.at, self.show.axis, data.level, nats=self.nats),
            scale="sizes" if self.sizes else "percent" if self.percent else "counts", reach=self.reach,
            reference=self.show.reference, legend=self.named,
        )  # fmt: skip

    def _positions(self, rows: Rows) -> dict[float, Score]:
        return {at: self.show.shown(row) for row in rows if (at := getattr(row, self.x)) is not None}

    def _scaled(self, rows: Rows) -> dict[int, Score]:
        return {number: self.show.shown(row) for number, row in enumerate(rows)}
