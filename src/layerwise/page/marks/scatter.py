"""Scatter plots: two scores of each layer, plan or edge."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any

from layerwise.page.data import ReportData
from layerwise.page.figures import frame
from layerwise.page.figures.frame import Figure, Trace
from layerwise.page.figures.palette import EMBEDDING, depth_color, fade, light_color
from layerwise.page.formatting import NUMBER, Format
from layerwise.page.marks.mark import Mark
from layerwise.results.rows import Score
from layerwise.results.selection import Rows

MOST_TICKS = 24
CROWDED = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """The style of a series: `line` connects its points, and `faint` makes them small and hides their intervals."""

    line: bool = False
    faint: bool = False
    bounds: bool = True
    symbol: str = ""
    size: int = 9


@dataclass(frozen=True, kw_only=True)
class Scatter(Mark):
    """A point for each value of the column `point`, such as each layer.

    The filter `across` selects the score on the horizontal axis, and `upwards` that on the vertical axis; `show_across`
    and `show` are their formats. Points have the color of their series, or of their depth if there are no series.
    `numbered` writes the value of `point` above it. `equal` draws the diagonal, `styles` maps series to styles, and
    `named` adds a legend. The vertical axis fits the series `focus` (default: all). If all points have the same
    horizontal position, there is no figure.
    """

    point: str = "layer"
    across: Mapping[str, Any] = field(default_factory=dict)
    upwards: Mapping[str, Any] = field(default_factory=dict)
    show_across: Format = NUMBER
    equal: bool = False
    numbered: bool = False
    styles: Mapping[Any, Style] = field(default_factory=dict)
    named: bool = False
    focus: tuple[str, ...] = ()
    at: str = "layer {}"
    hollow: Callable[[Score], bool] = lambda row: False

    def figure(self, rows: Rows, data: ReportData, slots: Mapping[str, int], all_rows: Rows) -> Figure | None:
        across_rows, upward_rows = rows.where(**self.across), rows.where(**self.upwards)
        groups = upward_rows.axis(self.series) if self.series else (None,)
        traces, spread, bounds = [], set(), []
        focused = [row for row in upward_rows if self.series_of(row) in self.focus]
        for group in groups:
            condition = {self.series: group} if self.series else {}
            xs, ys = across_rows.where(**condition).along(self.point), upward_rows.where(**condition).along(self.point)
            pairs = [
                (key, self.show_across.scale_score(xs[key]), self.show.scale_score(ys[key])) for key in ys if key in xs
            ]
            style = self.styles.get(group, Style())
            if style.line:
                pairs.sort(key=lambda pair: pair[1].value)
            spread |= {x.value for _, x, _ in pairs}
            bounds += [bound for _, x, y in pairs for bound in (x.value, y.value)]
            if pairs:
                traces.append(self._trace(group, style, pairs, xs, ys, data, slots))
        if len(spread) < 2:
            return None
        ends = frame.compute_limits(bounds) or (0.0, 1.0)
        is_integer = all(value == round(value) for value in spread) and max(spread) - min(spread) <= MOST_TICKS
        reference = self.show_across.reference
        x: dict[str, Any] = {"title": self.show_across.axis, "zeroline": True, "dtick": 1 if is_integer else None}
        return frame.make_figure(
            self.height or 380,
            [*([_equal(*ends)] if self.equal else []), *traces],
            x=x,
            y={"title": self.show.axis, "range": frame.common_span(focused) or self.show.span},
            shapes=[frame.vertical_line(reference, **frame.REFERENCE)] if reference else [],
            margin={"l": 48, "r": 16, "t": 58 if self.named else 14, "b": 40},
            showlegend=self.named,
            legend=frame.LEGEND,
        )

    def _trace(
        self, group: Any, style: Style, pairs: Any, xs: Any, ys: Any, data: ReportData, slots: Mapping[str, int]
    ) -> Trace:
        keys = [key for key, _, _ in pairs]
        across, upwards = [x for _, x, _ in pairs], [y for _, _, y in pairs]
        depths = [ys[key].layer for key in keys]
        color, _, symbol = frame.series_style(slots.get(str(group), 0))
        pale = fade(light_color("muted"), 0.45)
        colors: Any = pale if style.faint else color
        if not self.series and any(depth is not None for depth in depths):
            colors = [EMBEDDING if depth is None else depth_color(depth, data.depth) for depth in depths]
        symbol = style.symbol or symbol
        hollow = [self.hollow(ys[key]) for key in keys]
        mode = "markers" + ("+text" if self.numbered else "") + ("+lines" if style.line else "")
        name = self.words(group) if group is not None else ""
        hover = [
            f"<b>{escape(name)}</b> {escape(self.at.format(key))}<br>{self.show_across.axis}: "
            f"{self.show_across.text(xs[key])}<br>{self.show.axis}: {self.show.text(ys[key])}"
            for key in keys
        ]
        reach = color if self.series else pale
        bounds = {
            axis: frame.error_bars(scores, reach, thickness=1.2)
            for axis, scores in (("error_x", across), ("error_y", upwards))
            if style.bounds and not style.faint and any(score.low is not None for score in scores)
        }
        return frame.scatter(
            x=[x.value for x in across],
            y=[y.value for y in upwards],
            mode=mode,
            **bounds,
            marker={
                "color": colors,
                "size": 5 if style.faint or len(pairs) >= CROWDED else style.size,
                "symbol": [f"{symbol}-open" if each else symbol for each in hollow],
            },
            line={"color": color, "width": 2},
            textposition="top center",
            text=[str(key) for key in keys] if self.numbered else hover,
            customdata=hover,
            textfont={"size": 11, "color": light_color("muted")},
            hovertemplate="%{customdata}<extra></extra>",
            legendgroup=str(group or ""),
            name=escape(name),
        )


def _equal(low: float, high: float) -> Trace:
    line = {"color": light_color("zero"), "dash": "dot", "width": 1.5}
    return frame.scatter(x=[low, high], y=[low, high], mode="lines", line=line, name="equal")
