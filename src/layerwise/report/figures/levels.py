"""Levels side by side in rows: what was measured, each with its interval, and what the nulls give, joined by a line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from layerwise.report.figures.figure import Figure, Trace, scatter, upright_line
from layerwise.report.figures.frame import REFERENCE, framed, series_style
from layerwise.report.notation import between
from layerwise.report.palette import faded, light
from layerwise.results.rows import Score

ROW = 30
NULL_SYMBOLS = ("line-ns-open", "line-ne-open", "line-nw-open", "circle-open")
HEAD = 84
LEGEND = 11  # for each name: on a phone the legend takes several lines


@dataclass(frozen=True, slots=True)
class Level:
    """One kind of mark: its score in every row that has it. A null is grey and its interval broad.

    `slot` picks its colour and mark, for a null its mark alone.
    """

    name: str
    rows: Mapping[str, Score]
    slot: int = 0
    null: bool = False


def levels(
    measured: Sequence[Level],
    *,
    across: str,
    floor: float | None = None,
    reference: float | None = None,
    span: tuple[float, float] | None = None,
) -> Figure:
    """A row for each name of any level; `reference` is a dotted vertical line, `span` fixes the axis.

    Values below `floor` are drawn at it, so that one wild value does not flatten the rest; the hover tells the value.
    """
    names = list(dict.fromkeys(name for level in measured for name in level.rows))
    return framed(
        HEAD + LEGEND * len(measured) + ROW * len(names),
        [_joined(measured, names, floor), *(_marks(level, floor) for level in measured)],
        x={"title": across, "zeroline": True, "range": span},
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
        shapes=[] if reference is None else [upright_line(reference, **REFERENCE)],
        margin={"l": 8, "r": 16, "t": 40, "b": 40},
        showlegend=True,
        legend={"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0, "font": {"size": 12}},
    )


def _joined(measured: Sequence[Level], names: Sequence[str], floor: float | None) -> Trace:
    """A thin line in each row from its least measured level to its greatest."""
    x: list[float | None] = []
    y: list[str | None] = []
    for name in names:
        found = [_lifted(level.rows[name].value, floor) for level in measured if not level.null and name in level.rows]
        if found:
            x += [min(found), max(found), None]
            y += [escape(name), escape(name), None]
    return scatter(
        x=x, y=y, mode="lines", line={"color": light("quiet"), "width": 2}, hoverinfo="skip", showlegend=False
    )


def _marks(level: Level, floor: float | None) -> Trace:
    colour, _, symbol = series_style(level.slot)
    names = list(level.rows)
    shown = [_lifted(level.rows[name].value, floor) for name in names]
    return scatter(
        x=shown,
        y=[escape(name) for name in names],
        mode="markers",
        marker={
            "color": light("zero") if level.null else colour,
            "symbol": NULL_SYMBOLS[level.slot % len(NULL_SYMBOLS)] if level.null else symbol,
            "size": 13 if level.null else 9,
            "line": {"width": 2 if level.null else 0, "color": light("zero") if level.null else colour},
        },
        error_x=_whiskers(level, shown, floor, colour),
        text=[_told(level, name) for name in names],
        hovertemplate="%{text}<extra></extra>",
        legendgroup=level.name,
        name=escape(level.name),
    )


def _told(level: Level, name: str) -> str:
    score = level.rows[name]
    return f"<b>{escape(name)}</b>, {escape(level.name)}<br>{between(score.value, score.low, score.high)}"


def _whiskers(level: Level, shown: Sequence[float], floor: float | None, colour: str) -> dict[str, Any]:
    scores = list(level.rows.values())
    highs = [_lifted(s.value if s.high is None else s.high, floor) for s in scores]
    lows = [_lifted(s.value if s.low is None else s.low, floor) for s in scores]
    return {
        "type": "data",
        "symmetric": False,
        "array": [max(0.0, high - at) for high, at in zip(highs, shown, strict=True)],
        "arrayminus": [max(0.0, at - low) for low, at in zip(lows, shown, strict=True)],
        "color": faded(light("muted"), 0.28) if level.null else colour,
        "thickness": 9 if level.null else 2,
        "width": 0,
    }


def _lifted(value: float, floor: float | None) -> float:
    return value if floor is None else max(value, floor)
