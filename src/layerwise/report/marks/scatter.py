"""Points in a plane: two scores of each layer, of each plan or of each edge."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any

from layerwise.report.data import ReportData
from layerwise.report.figures.figure import Figure, scatter
from layerwise.report.figures.frame import diagonal, framed, limits, series_style, whiskers
from layerwise.report.marks.mark import Mark
from layerwise.report.page.palette import depth_colour, faded, light
from layerwise.report.page.wiring import EMBEDDING
from layerwise.report.show import NUMBER, Show
from layerwise.results.rows import Score
from layerwise.results.selection import Rows

CROWDED = 1_000
"""From so many points on they are smaller."""


@dataclass(frozen=True, kw_only=True)
class Scatter(Mark):
    """A point for each value of the column `point` that has a row `across` and a row `upwards`, each a filter.

    `show_across` is the quantity across, `show` that upwards. Points are coloured by their series, or by depth where
    `point` is a layer, which also numbers them (`numbered`); a point without a depth is grey. `equal` draws the line on
    which both agree. `line` joins the points of a series in the order of the quantity across: a front. `bare` draws no
    axes, for a layout whose coordinates have no unit. There is no picture where all points share one position across.
    """

    point: str = "layer"
    across: Mapping[str, Any] = field(default_factory=dict)
    upwards: Mapping[str, Any] = field(default_factory=dict)
    show_across: Show = NUMBER
    equal: bool = False
    numbered: bool = False
    line: bool = False
    bare: bool = False
    log: bool = False
    at: str = "layer {}"
    depth_of: Callable[[Score], int | None] = lambda row: row.layer
    hollow: Callable[[Score], bool] = lambda row: False

    def figure(self, rows: Rows, data: ReportData, slots: Mapping[str, int], all_rows: Rows) -> Figure | None:
        """The points of the rows that have both coordinates."""
        left, up = rows.where(**self.across), rows.where(**self.upwards)
        groups = up.axis(self.series) if self.series else (None,)
        traces, spread, bounds = [], set(), []
        for group in groups:
            own = {self.series: group} if self.series else {}
            xs, ys = left.where(**own).along(self.point), up.where(**own).along(self.point)
            pairs = [
                (key, self.show_across.shown(xs[key]), self.show.shown(ys[key])) for key in ys if key in xs
            ]  # fmt: skip
            if self.line:
                pairs.sort(key=lambda pair: pair[1].value)
            spread |= {x.value for _, x, _ in pairs}
            bounds += [bound for _, x, y in pairs for bound in (x.value, y.value)]
            if pairs:
                traces.append(self._trace(group, pairs, xs, ys, data, slots))
        if len(spread) < 2:
            return None
        ends = limits(bounds) or (0.0, 1.0)
        bare = {"showgrid": False, "zeroline": False, "showticklabels": False, "ticks": ""}
        x: dict[str, Any] = {"title": self.show_across.axis, "zeroline": True, **({"type": "log"} if self.log else {})}
        return framed(
            self.height or 380, [*([diagonal(*ends, "equal")] if self.equal else []), *traces],
            x=bare if self.bare else x,
            y={**bare, "scaleanchor": "x"} if self.bare else {"title": self.show.axis, "range": self.show.span},
            margin={"l": 48, "r": 16, "t": 14, "b": 40},
        )  # fmt: skip

    def _trace(self, group: Any, pairs: Any, xs: Any, ys: Any, data: ReportData, slots: Mapping[str, int]) -> Any:
        keys = [key for key, _, _ in pairs]
        depths = [self.depth_of(ys[key]) for key in keys]
        colour, _, symbol = series_style(slots.get(str(group), 0))
        colours: Any = colour
        if not self.series and any(depth is not None for depth in depths):
            colours = [EMBEDDING if depth is None else depth_colour(depth, data.depth) for depth in depths]
        hollow = [self.hollow(ys[key]) for key in keys]
        pale = faded(light("muted"), 0.45)
        mode = "markers" + ("+text" if self.numbered else "") + ("+lines" if self.line else "")
        hover = [
            f"<b>{escape(self.at.format(key))}</b><br>{self.show_across.axis}: {self.show_across.text(xs[key])}"
            f"<br>{self.show.axis}: {self.show.text(ys[key])}"
            for key in keys
        ]
        return scatter(
            x=[x.value for _, x, _ in pairs], y=[y.value for _, _, y in pairs], mode=mode,
            error_x=whiskers([x for _, x, _ in pairs], pale, thickness=1.2),
            error_y=whiskers([y for _, _, y in pairs], pale, thickness=1.2),
            marker={
                "color": colours, "size": 5 if len(pairs) >= CROWDED else 9,
                "symbol": [f"{symbol}-open" if each else symbol for each in hollow],
            },
            line={"color": colour, "width": 2}, textposition="top center",
            text=[str(key) for key in keys] if self.numbered else hover, customdata=hover,
            textfont={"size": 11, "color": light("muted")}, hovertemplate="%{customdata}<extra></extra>",
            legendgroup=str(group or ""), name=escape(self.words(group)) if group is not None else "",
        )  # fmt: skip
