"""Effects as maps: every contiguous window in a triangle, and families of many strategies as a grid.

The colour is the signed square root of the effect, so that small effects are told apart; its scale is labelled in nats.
White is no effect, orange worse, blue better.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from html import escape

from layerwise.report.curves import curves
from layerwise.report.data import DELTA, Evidence
from layerwise.report.figures.curves import SIZES
from layerwise.report.figures.figure import Figure, heatmap
from layerwise.report.figures.frame import framed, hover
from layerwise.report.notation import between, tidy
from layerwise.report.palette import DIVERGING, light
from layerwise.report.wording import label

Cells = dict[tuple[int, int], tuple[float, str]]


def window_map(evidence: Evidence, task: str, windows: Mapping[tuple[int, int], str], verb: str) -> Figure:
    """The effect of doing something to layers first..last: first across, last upwards, single layers on the diagonal.

    `windows` maps (first, last) to its plan; `verb` says what is done, as in "layers 3–5 dropped".
    """
    cells: Cells = {}
    for (first, last), plan in windows.items():
        score = evidence.effect(plan, task, DELTA)
        if score is not None and math.isfinite(score.value):
            told = hover(f"layers {first}–{last} {verb}", plan, score, evidence.data.level)
            cells[first, last] = (score.value, told)
    places = [str(layer) for layer in range(evidence.depth)]
    return _map(cells, (places, f"first layer {verb}"), (places, f"last layer {verb}"), 460)


def strategy_map(evidence: Evidence, family: str, task: str) -> Figure:
    """A family of many strategies: affected layers across, strategies upwards, the effect as colour."""
    drawn = curves(evidence, family, task)
    sizes = sorted({point.affected for curve in drawn for point in curve.points})
    cells: Cells = {}
    for row, curve in enumerate(drawn):
        for point in curve.points:
            effect = between(point.value, point.low, point.high, signed=True)
            told = f"<b>{escape(label(curve.strategy))}</b>, {point.affected}<br>{effect} nats per token"
            cells[sizes.index(point.affected), row] = (point.value, told)
    names = [escape(label(curve.strategy)) for curve in drawn]
    across = ([str(size) for size in sizes], SIZES.get(family, "layers affected"))
    return _map(cells, across, (names, ""), max(300, 90 + 17 * len(names)))


def _map(cells: Cells, x: tuple[list[str], str], y: tuple[list[str], str], height: int) -> Figure:
    (across, below), (upwards, beside) = x, y
    values: list[list[float | None]] = [[None] * len(across) for _ in upwards]
    told = [[""] * len(across) for _ in upwards]
    for (column, row), (value, text) in cells.items():
        values[row][column] = math.copysign(math.sqrt(abs(value)), value)
        told[row][column] = text
    largest = max((abs(value) for value, _ in cells.values()), default=0.0) or 1.0
    ticks = [share * largest for share in (-1.0, -0.25, 0.0, 0.25, 1.0)]
    colours = [colour for colour, _ in DIVERGING]
    plain = {"type": "category", "showgrid": False, "zeroline": False}
    grid = heatmap(
        x=across,
        y=upwards,
        z=values,
        text=told,
        hovertemplate="%{text}<extra></extra>",
        hoverongaps=False,
        zmin=-math.sqrt(largest),
        zmax=math.sqrt(largest),
        xgap=1,
        ygap=1,
        colorscale=[[index / (len(colours) - 1), colour] for index, colour in enumerate(colours)],
        colorbar={
            "tickvals": [math.copysign(math.sqrt(abs(tick)), tick) for tick in ticks],
            "ticktext": [tidy(tick, signed=True) for tick in ticks],
            "tickfont": {"color": light("muted"), "size": 11},
            "thickness": 9,
            "outlinewidth": 0,
        },
    )
    return framed(height, [grid], x={"title": below, **plain}, y={"title": beside, **plain})
