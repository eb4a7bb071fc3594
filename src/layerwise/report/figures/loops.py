"""The map of parallel layers: how many run, how often or with what gain, and what that costs."""

from __future__ import annotations

import math
from collections.abc import Mapping

from layerwise.report.evidence import Evidence
from layerwise.report.figures.figure import Figure, Trace, heatmap, scatter
from layerwise.report.figures.frame import colour_scale, framed, hover
from layerwise.report.figures.heatmaps import BAR, ORANGE_IS_MORE, PLAIN
from layerwise.report.page.number_format import between, tidy
from layerwise.report.page.palette import light
from layerwise.report.sweep.loops import LoopGrid
from layerwise.results.rows import Score

HEIGHT = 430
MOST_TICKS = 14


def loop_map(
    evidence: Evidence,
    grid: LoopGrid,
    noun: str,
    *,
    best: Mapping[int, Score] | None = None,
    line: tuple[float, float] | None = None,
    largest: float | None = None,
) -> Figure:
    """Layers in parallel across, the number of `noun` upwards, the effect as colour, the best of each window marked.

    `best` are the best numbers with their intervals, where they were estimated; `line` is the intercept and the slope
    of a line through them. The colour is the signed square root of the effect, its scale ends at `largest`.
    """
    sizes, numbers = sorted({size for size, _ in grid.effects}), sorted({number for _, number in grid.effects})
    cells = [[grid.effects.get((size, number)) for size in sizes] for number in numbers]
    end = largest or largest_effect(grid)
    text = [
        [
            ""
            if score is None
            else hover(f"{size} layers, {noun} {number}", score.plan or "", score, evidence.data.level)
            for size, score in zip(sizes, row, strict=True)
        ]
        for number, row in zip(numbers, cells, strict=True)
    ]
    ticks = [share * end for share in (-1.0, -0.25, 0.0, 0.25, 1.0)]
    colours = heatmap(
        x=sizes, y=numbers, z=[[None if score is None else _root(score.value) for score in row] for row in cells],
        zmin=-math.sqrt(end), zmax=math.sqrt(end), xgap=1, ygap=1, text=text,
        colorscale=colour_scale(ORANGE_IS_MORE),
        colorbar={**BAR, "tickvals": [_root(tick) for tick in ticks],
                  "ticktext": [tidy(tick, signed=True) for tick in ticks]},
    )  # fmt: skip
    fitted = () if line is None else (_line(line, sizes, numbers),)
    return framed(
        HEIGHT,
        [colours, *fitted, _best(grid, noun, best or {})],
        x={"title": "layers in parallel", **PLAIN, "tickmode": "array", "tickvals": _ticks(sizes)},
        y={"title": noun, **PLAIN, "tickmode": "array", "tickvals": _ticks(numbers)},
    )


def largest_effect(*grids: LoopGrid) -> float:
    """The largest effect of any cell, which scales of maps that stand side by side share."""
    return max((abs(score.value) for grid in grids for score in grid.effects.values()), default=0.0) or 1.0


def _best(grid: LoopGrid, noun: str, best: Mapping[int, Score]) -> Trace:
    points = grid.best
    bounds = {size: best[size] for size in points if size in best}
    shown = {size: between(points[size], score.low, score.high) for size, score in bounds.items()}
    lows = [_reach(points[size] - (bounds[size].low or points[size])) if size in bounds else 0 for size in points]
    highs = [_reach((bounds[size].high or points[size]) - points[size]) if size in bounds else 0 for size in points]
    ink = light("ink")
    return scatter(
        x=list(points),
        y=list(points.values()),
        mode="markers",
        marker={"symbol": "diamond", "size": 9, "color": "#ffffff", "line": {"color": ink, "width": 1.6}},
        error_y={
            "type": "data", "symmetric": False, "array": highs, "arrayminus": lows, "color": ink, "thickness": 1.4,
            "width": 3,
        },
        text=[f"<b>{size} layers</b><br>best {noun}: {shown.get(size, points[size])}" for size in points],
        name="best",
    )  # fmt: skip


def _line(line: tuple[float, float], sizes: list[int], numbers: list[int]) -> Trace:
    """The line over the windows, where it lies on the map."""
    at = [(size, line[0] + line[1] * size) for size in sizes]
    inside = [(size, number) for size, number in at if numbers[0] - 0.5 <= number <= numbers[-1] + 0.5]
    return scatter(
        x=[size for size, _ in inside],
        y=[number for _, number in inside],
        mode="lines",
        line={"color": light("ink"), "dash": "dash", "width": 1.6},
        name="line",
    )


def _ticks(values: list[int]) -> list[int]:
    return values[:: 1 + (len(values) - 1) // MOST_TICKS]


def _reach(distance: float) -> float:
    return max(0.0, distance)


def _root(value: float) -> float:
    return math.copysign(math.sqrt(abs(value)), value)
