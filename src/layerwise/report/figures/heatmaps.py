"""Numbers on a grid as colours: effects of windows and strategies, positions of layers, correlations, similarities."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from itertools import count
from typing import Any

from layerwise.report.evidence import DELTA, Evidence
from layerwise.report.figures.curves import SIZES
from layerwise.report.figures.figure import Figure, Trace, heatmap, square
from layerwise.report.figures.frame import colour_scale, framed, hover, interval
from layerwise.report.page.number_format import fixed, tidy
from layerwise.report.page.palette import DIVERGING, VIRIDIS, light
from layerwise.report.page.wording import label
from layerwise.report.sweep.curves import curves
from layerwise.report.sweep.similarity import Matrix
from layerwise.results.rows import Score

TICKS = {"color": light("muted"), "size": 11}
BAR = {"thickness": 9, "outlinewidth": 0, "tickfont": TICKS}
ORANGE_IS_MORE = tuple(colour for colour, _ in DIVERGING)
PLAIN = {"showgrid": False, "zeroline": False, "ticks": ""}
NAMED = {"type": "category", "showgrid": False, "zeroline": False}
CELL = 34
MOST_LABELS = 8  # of a similarity map, on each side

Pairs = Mapping[tuple[int, int], Score]
Cells = dict[tuple[int, int], tuple[float, str]]
"""(Column, row) to an effect and its hover text."""


def window_map(evidence: Evidence, task: str, windows: Mapping[tuple[int, int], str], verb: str) -> Figure:
    """The effect of doing something to layers first..last: first across, last upwards, single layers on the diagonal.

    `windows` maps (first, last) to its plan; `verb` says what is done, as in "layers 3–5 dropped".
    """
    cells: Cells = {}
    for (first, last), plan in windows.items():
        score = evidence.effect(plan, task, DELTA)
        if score is not None and math.isfinite(score.value):
            text = hover(f"layers {first}–{last} {verb}", plan, score, evidence.data.level)
            cells[first, last] = (score.value, text)
    layers = [str(layer) for layer in range(evidence.depth)]
    return _effects(cells, (layers, f"first layer {verb}"), (layers, f"last layer {verb}"), 460)


def strategy_map(evidence: Evidence, family: str, task: str) -> Figure:
    """A family of many strategies: affected layers across, strategies upwards, the effect as colour."""
    drawn = curves(evidence, family, task)
    sizes = sorted({point.affected for curve in drawn for point in curve.points})
    names = [escape(label(curve.strategy)) for curve in drawn]
    cells: Cells = {}
    for row, curve in enumerate(drawn):
        for point in curve.points:
            text = f"<b>{names[row]}</b>, {point.affected}<br>{interval(point, signed=True)} nats per token"
            cells[sizes.index(point.affected), row] = (point.value, text)
    across = ([str(size) for size in sizes], SIZES.get(family, "layers affected"))
    return _effects(cells, across, (names, ""), max(300, 90 + 17 * len(names)))


def _effects(cells: Cells, x: tuple[list[str], str], y: tuple[list[str], str], height: int) -> Figure:
    """The colour is the signed square root of the effect, so that small effects are distinguished; its scale is in
    nats.

    White is no effect, orange worse, blue better.
    """
    (across, below), (upwards, beside) = x, y
    values: list[list[float | None]] = [[None] * len(across) for _ in upwards]
    text = [[""] * len(across) for _ in upwards]
    for (column, row), (value, shown) in cells.items():
        values[row][column], text[row][column] = _root(value), shown
    largest = max((abs(value) for value, _ in cells.values()), default=0.0) or 1.0
    ticks = [share * largest for share in (-1.0, -0.25, 0.0, 0.25, 1.0)]
    bar = {"tickvals": [_root(tick) for tick in ticks], "ticktext": [tidy(tick, signed=True) for tick in ticks]}
    ends = (-math.sqrt(largest), math.sqrt(largest))
    grid = _cells(across, upwards, values, ends, ORANGE_IS_MORE, text=text, bar=bar, gap=1)
    return framed(height, [grid], x={"title": below, **NAMED}, y={"title": beside, **NAMED})


def window_grid(scores: Pairs, *, titles: tuple[str, str], height: int = 380) -> Figure:
    """Pairs (first layer, number of layers) as colour: first across, number upwards; brighter is greater."""
    columns, rows = sorted({first for first, _ in scores}), sorted({length for _, length in scores})
    cells = [[scores.get((first, length)) for first in columns] for length in rows]
    text = [
        [_hover(score, f"layers {first}–{first + length - 1}") for first, score in zip(columns, line, strict=True)]
        for length, line in zip(rows, cells, strict=True)
    ]
    grid = _cells(columns, rows, _values(cells), (0.0, None), VIRIDIS, text=text)
    return framed(height, [grid], x={"title": titles[0], **PLAIN}, y={"title": titles[1], **PLAIN})


def agreement_grid(
    names: Sequence[tuple[str, str]], scores: Mapping[tuple[str, str], Score], null: str | None = None
) -> Figure:
    """A square of correlations from -1 to 1; `names` pairs each score with the words that label it.

    A number stands in every cell; where the interval holds zero it is in brackets. With the score called
    `null` the cell tells how far from zero chance alone reaches.
    """
    words = [shown for _, shown in names]
    cells = [[scores.get((row, column)) for column, _ in names] for row, _ in names]
    grid = _cells(
        words,
        words,
        _values(cells),
        (-1.0, 1.0),
        ORANGE_IS_MORE[::-1],
        gap=1,
        text=[[_cell(scores.get((row, column)), null in (row, column)) for column, _ in names] for row, _ in names],
        texttemplate="%{text}",
        textfont={"size": 11},
        customdata=[
            [_hover(score, f"{left}</b> and <b>{below}") for below, score in zip(words, line, strict=True)]
            for left, line in zip(words, cells, strict=True)
        ],
        hovertemplate="%{customdata}<extra></extra>",
    )
    return framed(
        110 + CELL * len(names),
        [grid],
        x={**NAMED, "ticks": "", "side": "bottom", "tickangle": -35},
        y={**NAMED, "ticks": "", "autorange": "reversed"},
        margin={"l": 8, "r": 8, "t": 8, "b": 8},
    )


def similarity_map(
    values: Matrix, low: float, high: float, *, diverging: bool = False, zone: tuple[int, int] | None = None
) -> Figure:
    """A square map of hidden states 0 (embedding) to the last layer; the caller gives the scale, so maps compare.

    The first and the last state of a `zone` are the corners of a frame.
    """
    span = [-0.5, len(values) - 0.5]
    step = next(step for step in count(1) if step * MOST_LABELS >= len(values))
    plain = {**PLAIN, "constrain": "domain", "tick0": 0, "dtick": step}
    bar = {"orientation": "h", "thickness": 8, "len": 0.9, "y": -0.02, "yanchor": "top", "nticks": 5}
    grid = heatmap(
        z=[list(row) for row in values],
        zmin=low,
        zmax=high,
        colorscale=colour_scale(ORANGE_IS_MORE if diverging else VIRIDIS),
        colorbar={**BAR, **bar},
        hovertemplate="hidden states %{y} and %{x}<br><b>%{z:.3f}</b><extra></extra>",
    )
    return framed(
        310,
        [grid],
        x={**plain, "range": span, "side": "top"},
        y={**plain, "range": span[::-1], "scaleanchor": "x"},
        shapes=[] if zone is None else [square(zone[0] - 0.5, zone[1] + 0.5, line={"color": "#ffffff", "width": 2})],
        margin={"l": 28, "r": 8, "t": 4, "b": 4},
    )


def _cells(
    x: Sequence[Any],
    y: Sequence[Any],
    values: list[list[float | None]],
    ends: tuple[float | None, float | None],
    colours: Sequence[str],
    *,
    bar: Mapping[str, Any] | None = None,
    gap: int | None = None,
    **more: Any,
) -> Trace:
    optional = {"zmin": ends[0], "zmax": ends[1], "xgap": gap, "ygap": gap}
    more |= {name: value for name, value in optional.items() if value is not None}
    return heatmap(x=x, y=y, z=values, colorscale=colour_scale(colours), colorbar={**BAR, **(bar or {})}, **more)


def _values(cells: Sequence[Sequence[Score | None]]) -> list[list[float | None]]:
    return [[None if score is None else score.value for score in line] for line in cells]


def _hover(score: Score | None, title: str, what: str = "") -> str:
    return "" if score is None else f"<b>{title}</b><br>{what}{interval(score)}"


def _root(value: float) -> float:
    return math.copysign(math.sqrt(abs(value)), value)


def _cell(score: Score | None, chance: bool) -> str:
    if score is None:
        return ""
    if chance and score.high is not None:
        return f"±{fixed(score.high, 2)}"
    shown = fixed(score.value, 2)
    holds_zero = score.low is not None and score.high is not None and score.low <= 0.0 <= score.high
    return f"({shown})" if holds_zero else shown
