"""Bars with intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

from layerwise.page.data import ReportData
from layerwise.page.figures import frame
from layerwise.page.figures.frame import Figure, Trace
from layerwise.page.figures.palette import fade, light_color
from layerwise.page.formatting import describe_verdict, format_p_value, is_resolved
from layerwise.page.marks.mark import Mark
from layerwise.results.rows import Score
from layerwise.results.selection import Rows

MOST_TICKS = 24


@dataclass(frozen=True, kw_only=True)
class Bars(Mark):
    """A bar with its interval for each value of the column `x`; the bars of several series are side by side.

    Without series, bars that do not differ from zero are pale. If `of` is given, the height of a bar is the number that
    this function returns. `across` is the title of the axis. In hover text, `at` names a position (`{}` is its value),
    and `text` adds a line.
    """

    x: str = "layer"
    across: str = "layer"
    at: str = "layer {}"
    of: Callable[[Score], float | None] | None = None
    stacked: bool = False
    text: Callable[[Score], str] = lambda row: ""

    def figure(self, rows: Rows, data: ReportData, slots: Mapping[str, int], all_rows: Rows) -> Figure | None:
        groups = rows.by(self.series) if self.series else {"": rows}
        traces = [self._bars(name, group, data.level, slots) for name, group in groups.items()]
        positions = {getattr(row, self.x) for row in rows}
        numeric = all(isinstance(value, int | float) for value in positions)
        shared = bool(self.each or self.choices) and self.of is None
        span = frame.common_span(map(self.show.scale_score, all_rows)) if shared else None
        return frame.make_figure(
            self.height or 360,
            traces,
            bargap=0.28,
            barmode="stack" if self.stacked else "group",
            x={
                "title": self.across,
                "showgrid": False,
                "dtick": 1 if numeric and len(positions) <= MOST_TICKS else None,
            },
            y={"title": self.show.axis, "range": self.show.span or span},
            shapes=[] if not self.show.reference else [frame.horizontal_line(self.show.reference, **frame.REFERENCE)],
            showlegend=len(groups) > 1,
            legend=frame.LEGEND,
            margin={"l": 48, "r": 12, "t": 32 if len(groups) > 1 else 8, "b": 40},
        )

    def _bars(self, name: Any, rows: Rows, level: float, slots: Mapping[str, int]) -> Trace:
        drawn = [row for row in rows if math.isfinite(row.value)]
        scaled = [self.show.scale_score(row) for row in drawn]
        pale = fade(light_color("muted"), 0.35)
        color: Any = [light_color("accent") if is_resolved(row, level) else pale for row in drawn]
        if self.series:
            color = frame.series_style(slots.get(str(name), 0))[0]
        return frame.bar(
            x=[getattr(row, self.x) for row in drawn],
            y=[row.value for row in scaled] if self.of is None else [self.of(row) for row in drawn],
            marker={"color": color, "line": {"width": 0}},
            text=[self._hover(row, level) for row in drawn],
            name=escape(self.words(name)),
            **({} if self.of else {"error_y": frame.error_bars(scaled, light_color("ink"), thickness=1.2, width=3)}),
        )

    def _hover(self, row: Score, level: float) -> str:
        parts = [f"<b>{escape(self.at.format(getattr(row, self.x)))}</b>", self.show.text(row)]
        if row.p_adjusted is not None:
            parts.append(f"adjusted p {format_p_value(row.p_adjusted)}: {describe_verdict(row, level)}")
        more = self.text(row)
        return "<br>".join([*parts, *([escape(more)] if more else [])])
