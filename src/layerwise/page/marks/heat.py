"""Heat maps, such as similarities of hidden states or effects of windows of layers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from layerwise.page.data import ReportData
from layerwise.page.figures.frame import CLEAR, Figure, Shape, color_scale, heatmap, make_figure
from layerwise.page.figures.palette import DIVERGING, VIRIDIS, light_color
from layerwise.page.marks.mark import Mark
from layerwise.results.rows import Score
from layerwise.results.selection import Rows

ORANGE_IS_MORE = tuple(color for color, _ in DIVERGING)
CELL, HEAD = 22, 90
MOST_ROWS = 40
TICKS = {"color": light_color("muted"), "size": 11}
SIGNS = 5


@dataclass(frozen=True, kw_only=True)
class Heat(Mark):
    """A heat map with a cell for each pair of values of the columns `x` (across) and `y` (down).

    If the colors are `diverging`, white is zero, orange is positive and blue is negative; otherwise brighter is larger.
    `sqrt_colors` applies the signed square root to the colors, and `least` and `most` are the ends of the scale.
    `numbers` writes values into the cells, formatted by `number`. `diagonal` adds a dotted line. A `square` map has
    square cells and only the rows and columns it needs. `upwards` begins at the bottom. A score with the metric
    `framed` is drawn as a square frame that reaches from `x` to `y` on both axes. `across` and `down` are the titles of
    the axes, and `text` adds a line to the hover text.
    """

    x: str = "layer"
    y: str = "to_layer"
    across: str = "layer"
    down: str = ""
    diverging: bool = False
    sqrt_colors: bool = False
    least: float | None = None
    most: float | None = None
    numbers: bool = False
    number: Callable[[Score], str] | None = None
    diagonal: bool = False
    upwards: bool = False
    square: bool = False
    framed: str = ""
    cell_words: Callable[[Any], str] = str
    text: Callable[[Score], str] = lambda row: ""

    def figure(self, rows: Rows, data: ReportData, slots: Mapping[str, int], all_rows: Rows) -> Figure | None:
        frames = rows.where(metric=self.framed) if self.framed else Rows()
        rows, all_rows = (Rows(row for row in group if row.metric != self.framed) for group in (rows, all_rows))
        across, down = (self._axis(rows if self.square else all_rows, column) for column in (self.x, self.y))
        cells = {(getattr(row, self.x), getattr(row, self.y)): row for row in rows if math.isfinite(row.value)}
        if not cells:
            return None
        x, y = [self.cell_words(value) for value in across], [self.cell_words(value) for value in down]
        grid = heatmap(
            x=list(range(len(x))),
            y=list(range(len(y))),
            z=[[self._color(cells.get((left, below))) for left in across] for below in down],
            text=[[self._hover(cells.get((left, below)), left, below) for left in across] for below in down],
            colorscale=color_scale(ORANGE_IS_MORE if self.diverging else VIRIDIS),
            **self._scale(all_rows),
            **({"xgap": 1, "ygap": 1} if len(across) <= MOST_ROWS and not frames else {}),
        )
        traces = [grid]
        height = self.height or HEAD + (CELL if len(down) <= MOST_ROWS else 8) * len(down)
        ends = [-0.5, len(down) - 0.5]
        return make_figure(
            height,
            traces,
            x=_named(self.across, x),
            showlegend=False,
            y={**_named(self.down, y), "range": ends if self.upwards else ends[::-1], **self._square()},
            **({"annotations": self._numbers(cells, across, down)} if self.numbers else {}),
            shapes=[*self._diagonal(len(x), len(y)), *self._frames(frames, across)],
            margin={"l": 40, "r": 8, "t": 8, "b": 44},
        )

    def _axis(self, rows: Rows, column: str) -> tuple[Any, ...]:
        values = rows.axis(column)
        return values if any(isinstance(value, str) for value in values) else tuple(sorted(values))

    def _color(self, row: Score | None) -> float | None:
        if row is None:
            return None
        value = self.show.scale_score(row).value
        return math.copysign(math.sqrt(abs(value)), value) if self.sqrt_colors else value

    def _scale(self, rows: Rows) -> dict[str, Any]:
        drawn = [value for row in rows if math.isfinite(row.value) and (value := self._color(row)) is not None]
        least, most = self.least, self.most
        if self.diverging:
            most = most if most is not None else max(map(abs, drawn), default=1.0) or 1.0
            least = -most
        bar: dict[str, Any] = {"thickness": 9, "outlinewidth": 0, "tickfont": TICKS}
        if self.sqrt_colors:
            positions = [most * (2 * at / (SIGNS - 1) - 1) for at in range(SIGNS)] if most else []
            values = [math.copysign(position * position, position) / self.show.scale for position in positions]
            bar |= {"tickmode": "array", "tickvals": positions, "ticktext": list(map(self.show.number, values))}
        ends = {"zmin": least, "zmax": most}
        return {"colorbar": bar, **{name: end for name, end in ends.items() if end is not None}}

    def _hover(self, row: Score | None, column: Any, below: Any) -> str:
        if row is None:
            return ""
        at = f"{self.across} {self.cell_words(column)}, {self.down} {self.cell_words(below)}".strip(", ")
        more = self.text(row)
        return "<br>".join([f"<b>{escape(at)}</b>", self.show.text(row), *([escape(more)] if more else [])])

    def _numbers(self, cells: Mapping[tuple[Any, Any], Score], across: Any, down: Any) -> list[dict[str, Any]]:
        return [
            {
                "x": across.index(column),
                "y": down.index(below),
                "text": self._number(row),
                "showarrow": False,
                "font": {"size": 11, "color": light_color("ink")},
                "bgcolor": CLEAR,
            }
            for (column, below), row in cells.items()
        ]

    def _number(self, row: Score) -> str:
        return self.show.number(row.value) if self.number is None else self.number(row)

    def _diagonal(self, columns: int, rows: int) -> list[dict[str, Any]]:
        line = {"color": light_color("zero"), "dash": "dot", "width": 1.2}
        ends = {"x0": -0.5, "y0": -0.5, "x1": columns - 0.5, "y1": rows - 0.5}
        return [{"type": "line", "xref": "x", "yref": "y", **ends, "line": line}] if self.diagonal else []

    def _frames(self, rows: Rows, across: Sequence[Any]) -> list[Shape]:
        ends = ((across.index(getattr(row, self.x)) - 0.5, across.index(getattr(row, self.y)) + 0.5) for row in rows)
        look = {"type": "rect", "xref": "x", "yref": "y", "line": {"color": "#ffffff", "width": 2}}
        return [{**look, "x0": low, "x1": high, "y0": low, "y1": high} for low, high in ends]

    def _square(self) -> dict[str, Any]:
        return {"scaleanchor": "x"} if self.square else {}


def _named(title: str, names: list[str]) -> dict[str, Any]:
    step = 1 + len(names) // MOST_ROWS if all(len(name) < 4 for name in names) else 1
    positions = list(range(0, len(names), step))
    return {
        "title": title,
        "showgrid": False,
        "zeroline": False,
        "tickmode": "array",
        "tickvals": positions,
        "ticktext": [escape(names[at]) for at in positions],
        "range": [-0.5, len(names) - 0.5],
    }
