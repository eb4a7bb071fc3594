"""Numbers on a grid: pairs of scores that agree or not, and windows of layers by where they begin and how long."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from layerwise.report.figures.figure import Figure, heatmap
from layerwise.report.figures.frame import framed
from layerwise.report.notation import between, fixed
from layerwise.report.palette import DIVERGING, VIRIDIS, light
from layerwise.results.rows import Score

BAR = {
    "thickness": 9,
    "outlinewidth": 0,
    "tickfont": {"color": light("muted"), "size": 11},
}
CELL = 34


def window_grid(scores: Mapping[tuple[int, int], Score], *, titles: tuple[str, str], height: int = 380) -> Figure:
    """Pairs (first layer, number of layers) as colour: first across, number upwards; brighter is greater."""
    columns = sorted({first for first, _ in scores})
    rows = sorted({length for _, length in scores})
    values = [[_value(scores.get((first, length))) for first in columns] for length in rows]
    told = [[_window(scores.get((first, length)), first, length) for first in columns] for length in rows]
    plain = {"showgrid": False, "zeroline": False, "ticks": ""}
    grid = heatmap(
        x=columns,
        y=rows,
        z=values,
        text=told,
        hovertemplate="%{text}<extra></extra>",
        hoverongaps=False,
        colorscale=_scale(VIRIDIS),
        zmin=0.0,
        colorbar=BAR,
    )
    return framed(height, [grid], x={"title": titles[0], **plain}, y={"title": titles[1], **plain})


def agreement_grid(
    names: Sequence[tuple[str, str]], scores: Mapping[tuple[str, str], Score], null: str | None = None
) -> Figure:
    """A square of correlations from -1 to 1; `names` pairs each score with the words that label it.

    A number stands in every cell; where the interval holds zero it is in brackets. With the score called
    `null` the cell tells how far from zero chance alone reaches.
    """
    words = [shown for _, shown in names]
    values = [[_value(scores.get((row, column))) for column, _ in names] for row, _ in names]
    text = [[_cell(scores.get((row, column)), null in (row, column)) for column, _ in names] for row, _ in names]
    told = [[_pair(scores.get((row, column)), left, below) for column, below in names] for row, left in names]
    plain = {"type": "category", "showgrid": False, "zeroline": False, "ticks": ""}
    grid = heatmap(
        x=words,
        y=words,
        z=values,
        text=text,
        customdata=told,
        texttemplate="%{text}",
        textfont={"size": 11},
        hovertemplate="%{customdata}<extra></extra>",
        hoverongaps=False,
        zmin=-1.0,
        zmax=1.0,
        xgap=1,
        ygap=1,
        colorscale=_scale([colour for colour, _ in reversed(DIVERGING)]),
        colorbar=BAR,
    )
    return framed(
        110 + CELL * len(names),
        [grid],
        x={**plain, "side": "bottom", "tickangle": -35},
        y={**plain, "autorange": "reversed"},
        margin={"l": 8, "r": 8, "t": 8, "b": 8},
    )


def _scale(colours: Sequence[str]) -> list[list[float | str]]:
    return [[index / (len(colours) - 1), colour] for index, colour in enumerate(colours)]


def _value(score: Score | None) -> float | None:
    return None if score is None else score.value


def _window(score: Score | None, first: int, length: int) -> str:
    if score is None:
        return ""
    return f"<b>layers {first}–{first + length - 1}</b><br>{between(score.value, score.low, score.high)}"


def _cell(score: Score | None, chance: bool) -> str:
    if score is None:
        return ""
    if chance and score.high is not None:
        return f"±{fixed(score.high, 2)}"
    shown = fixed(score.value, 2)
    holds_zero = score.low is not None and score.high is not None and score.low <= 0.0 <= score.high
    return f"({shown})" if holds_zero else shown


def _pair(score: Score | None, left: str, below: str) -> str:
    return "" if score is None else f"<b>{left}</b> and <b>{below}</b><br>{between(score.value, score.low, score.high)}"
