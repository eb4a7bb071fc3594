"""Many draws as a swarm of dots, a row for each arm: how far one order, or one merged model, is from the next."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from statistics import median

from layerwise.report.figures.figure import Figure, Trace, scatter, upright_line
from layerwise.report.figures.frame import LEGEND, REFERENCE, framed, interval, limits, row_axis, series_style
from layerwise.report.figures.palette import faded, light
from layerwise.report.text.number_format import tidy
from layerwise.results.rows import Score

ROW = 38
HEAD = 62
BINS = 110  # columns of dots across the figure; dots of one column stand above each other
STEP, REACH = 0.085, 0.4  # between two dots of a column, and the most that one is moved, in rows


@dataclass(frozen=True, slots=True)
class Strip:
    """The draws of one row: what each is (its hover text) to its value; `mark` is what they are compared with."""

    name: str
    draws: Mapping[str, float]
    slot: int
    mark: Score | None = None


def strips(
    rows: Sequence[Strip],
    *,
    across: str,
    reference: float | None = None,
    mark: str = "",
    span: tuple[float, float] | None = None,
) -> Figure:
    """A swarm a row with its median as a tick; `mark` names the marks, `reference` is a dotted vertical line.

    `span` fixes the axis, for figures that stand side by side.
    """
    span = span or limits([reference, *(value for row in rows for value in row.draws.values())])
    width = (span[1] - span[0]) / BINS if span else 1.0
    swarms = [_dots(row, y, width) for y, row in enumerate(rows)]
    return framed(
        HEAD + ROW * len(rows) + (18 if mark else 0),
        [*swarms, _medians(rows), *([_marks(rows, mark)] if mark else [])],
        x={"title": across, "zeroline": True, "range": span},
        y=row_axis([row.name for row in rows], ticks=""),
        shapes=[] if reference is None else [upright_line(reference, **REFERENCE)],
        margin={"l": 8, "r": 16, "t": 30 if mark else 8, "b": 40},
        showlegend=bool(mark),
        legend=LEGEND,
    )


def swarmed(values: Sequence[float], width: float) -> list[float]:
    """How far from the middle of its row each dot stands, so that dots of nearly one value do not hide each other.

    >>> swarmed([1.0, 1.01, 5.0, 1.02], 0.1)
    [0.0, -0.085, 0.0, 0.085]
    """
    columns: dict[int, list[int]] = defaultdict(list)
    for index, value in enumerate(values):
        columns[round(value / width)].append(index)
    moved = [0.0] * len(values)
    for members in columns.values():
        step = min(STEP, REACH / max(1, len(members) // 2))
        for rank, index in enumerate(members):
            side = -1.0 if rank % 2 else 1.0
            moved[index] = side * step * ((rank + 1) // 2) or 0.0
    return moved


def _dots(row: Strip, y: int, width: float) -> Trace:
    colour, _, _ = series_style(row.slot)
    values = list(row.draws.values())
    return scatter(
        x=values,
        y=[round(y + moved, 3) for moved in swarmed(values, width)],
        mode="markers",
        marker={"color": faded(colour, 0.6), "size": 5.5, "line": {"width": 0}},
        text=[f"<b>{escape(row.name)}</b><br>{escape(draw)}<br>{tidy(value)}" for draw, value in row.draws.items()],
        name=escape(row.name),
        showlegend=False,
    )


def _medians(rows: Sequence[Strip]) -> Trace:
    drawn = [(y, row) for y, row in enumerate(rows) if row.draws]
    middles = [median(row.draws.values()) for _, row in drawn]
    return scatter(
        x=middles,
        y=[y for y, _ in drawn],
        mode="markers",
        marker={"symbol": "line-ns-open", "size": 26, "line": {"width": 2}, "color": light("ink")},
        text=[
            f"<b>{escape(row.name)}</b><br>median of {len(row.draws)} draws: {tidy(middle)}"
            for (_, row), middle in zip(drawn, middles, strict=True)
        ],
        name="median of the draws",
    )


def _marks(rows: Sequence[Strip], name: str) -> Trace:
    marked = [(y, row.name, row.mark) for y, row in enumerate(rows) if row.mark is not None]
    return scatter(
        x=[score.value for _, _, score in marked],
        y=[y for y, _, _ in marked],
        mode="markers",
        marker={"symbol": "diamond-open", "size": 11, "line": {"width": 2}, "color": light("accent")},
        text=[f"<b>{escape(row)}</b><br>{escape(name)}: {interval(score)}" for _, row, score in marked],
        name=escape(name),
    )
