"""Levels side by side in rows: what was measured with its interval, and what the nulls give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any

from layerwise.page.data import ReportData
from layerwise.page.figures import frame
from layerwise.page.figures.frame import Figure, Trace
from layerwise.page.figures.palette import faded, light
from layerwise.page.marks.mark import Mark
from layerwise.page.text.wording import null_name
from layerwise.results.rows import Score
from layerwise.results.selection import Rows

ROW = 30
NULL_SYMBOLS = ("line-ns-open", "line-ne-open", "line-nw-open", "circle-open")
HEAD = 84
NAME = 11  # for each name: on a phone the legend takes several lines


@dataclass(frozen=True, slots=True)
class Level:
    """A mark for one score; a null is gray with a broad interval. `slot` picks color and symbol (null: symbol only)."""

    name: str
    rows: Mapping[str, Score]
    slot: int = 0
    null: bool = False


@dataclass(frozen=True, kw_only=True)
class Levels(Mark):
    """A row for each value of the column `y`, with a mark for each series; rows `against` something are gray nulls.

    Values below `floor` are drawn at it; the hover shows the value. There is no picture if there are only nulls.
    """

    y: str = "part"
    floor: float | None = None

    def figure(self, rows: Rows, data: ReportData, slots: Mapping[str, int], all_rows: Rows) -> Figure | None:
        """The levels of the rows."""
        measured = rows.where(against=None)
        groups = measured.by(self.series) if self.series else {"measured": measured}
        nulls = enumerate(rows.by("against").items())
        return (
            self.drawn(
                [
                    *(Level(null_name(null), self._row_of(own), slot, null=True) for slot, (null, own) in nulls),
                    *(
                        Level(self.words(name), self._row_of(own), slots.get(str(name), 0))
                        for name, own in groups.items()
                    ),
                ]
            )
            if measured
            else None
        )

    def _row_of(self, rows: Rows) -> dict[Any, Score]:
        return {getattr(row, self.y): self.show.shown(row) for row in rows}

    def drawn(self, levels: Sequence[Level]) -> Figure:
        """A row for each name of any level."""
        names = list(dict.fromkeys(name for level in levels for name in level.rows))
        reference = self.show.reference
        return frame.framed(
            HEAD + NAME * len(levels) + ROW * len(names),
            [_joined(levels, names, self.floor), *(_marks(level, self.floor) for level in levels)],
            x={"title": self.show.axis, "zeroline": True, "range": self.show.span},
            y={
                "autorange": "reversed",
                "showgrid": True,
                "zeroline": False,
                "type": "category",
                "categoryorder": "array",
                "categoryarray": [escape(name) for name in names],
                "dtick": 1,
                "tickfont": {"color": light("ink"), "size": 12},
            },
            shapes=[] if reference is None else [frame.upright_line(reference, **frame.REFERENCE)],
            margin={"l": 8, "r": 16, "t": 40, "b": 40},
            showlegend=True,
            legend=frame.LEGEND,
        )


def _joined(measured: Sequence[Level], names: Sequence[str], floor: float | None) -> Trace:
    x: list[float | None] = []
    y: list[str | None] = []
    for name in names:
        values = [_lifted(level.rows[name].value, floor) for level in measured if not level.null and name in level.rows]
        if values:
            x += [min(values), max(values), None]
            y += [escape(name), escape(name), None]
    return frame.scatter(x=x, y=y, mode="lines", line={"color": light("quiet"), "width": 2}, showlegend=False)


def _marks(level: Level, floor: float | None) -> Trace:
    colour, _, symbol = frame.series_style(level.slot)
    colour = light("zero") if level.null else colour
    lifted = [_at_least(score, floor) for score in level.rows.values()]
    bars = faded(light("muted"), 0.28) if level.null else colour
    return frame.scatter(
        x=[score.value for score in lifted],
        y=[escape(name) for name in level.rows],
        mode="markers",
        marker={
            "color": colour,
            "symbol": NULL_SYMBOLS[level.slot % len(NULL_SYMBOLS)] if level.null else symbol,
            "size": 13 if level.null else 9,
            "line": {"width": 2 if level.null else 0, "color": colour},
        },
        error_x=frame.whiskers(lifted, bars, thickness=9 if level.null else 2),
        text=[
            f"<b>{escape(name)}</b>, {escape(level.name)}<br>{frame.interval(score)}"
            for name, score in level.rows.items()
        ],
        legendgroup=level.name,
        name=escape(level.name),
    )


def _at_least(score: Score, floor: float | None) -> Score:
    low, high = (score.value if bound is None else bound for bound in (score.low, score.high))
    return replace(score, value=_lifted(score.value, floor), low=_lifted(low, floor), high=_lifted(high, floor))


def _lifted(value: float, floor: float | None) -> float:
    return value if floor is None else max(value, floor)
