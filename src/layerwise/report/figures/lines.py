"""Lines of scores along an axis with their intervals, over the bands of their nulls: the workhorse of a diagnosis.

Both are maps from a position on the axis (a layer, a lag, a size, a number of layers dropped) to the score measured
there, so that one figure function draws every measure that has an axis. A fan has a curve for each layer, coloured by
depth.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Literal

from layerwise.report.figures.frame import (
    LEGEND,
    REFERENCE,
    Figure,
    Trace,
    filled,
    framed,
    interval,
    level_line,
    limits,
    scatter,
    series_style,
    whiskers,
)
from layerwise.report.figures.palette import depth_colour, faded, light
from layerwise.report.text.number_format import is_resolved, probability, tidy
from layerwise.results.rows import Score

Rows = Mapping[Any, Score]
"""Position to score. Positions are numbers, whole for layers and counts, real for sizes: a mapping of either does."""


@dataclass(frozen=True, slots=True)
class Line:
    """Scores along an axis. `slot` is its colour; `hollow` holds the positions drawn as open markers;
    `draws` are positions and values of single draws, faint dots behind the line."""

    name: str
    rows: Rows
    slot: int
    hollow: frozenset[float] = frozenset()
    draws: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Band:
    """What a null gives along the same axis: an area where it has an interval, a dashed line where it has none."""

    name: str
    rows: Rows


MOST_TICKS = 24
MOST_SIZES = 6
SMALL = 300  # a figure less high than this leaves its axis titles to the heading above it
BAND_OPACITY = (0.22, 0.13, 0.08)
BAND_DASH = ("dash", "dot", "dashdot")
QUARTERS = {
    "range": (-3.0, 103.0), "tickmode": "array", "tickvals": [0, 25, 50, 75, 100],
    "ticktext": ["0 %", "25 %", "50 %", "75 %", "100 %"],
}  # fmt: skip
"""An axis of shares from nothing to all, with air for the markers at either end."""
Describe = Callable[[str, float, Score], str]
Scale = Literal["counts", "sizes", "percent"]


def lined(
    lines: Sequence[Line],
    bands: Sequence[Band] = (),
    *,
    across: str,
    upwards: str,
    describe: Describe,
    height: int = 340,
    span: tuple[float, float] | None = None,
    reach: tuple[float, float] | None = None,
    scale: Scale = "counts",
    reference: float | None = None,
    legend: bool = False,
) -> Figure:
    """Each line with its interval as a ribbon, each null as a grey band; `tell` writes the hover text of a point.

    `across` and `upwards` name the axes; small figures leave the names to the heading above them. `span` fixes the
    vertical axis, for figures that stand side by side, and `reach` the horizontal one; `scale` says that positions are
    sizes of a change, on a logarithmic axis, or in percent of a whole, and not counts; `reference` is
    a dotted level line. The nulls are named above the figure, with `legend` the lines too.
    """
    small = height < SMALL
    xs = {x for rows in (*(line.rows for line in lines), *(band.rows for band in bands)) for x in rows}
    crowded = len(xs) > (MOST_TICKS // 2 if small else MOST_TICKS)
    step = (
        QUARTERS
        if scale == "percent"
        else size_axis(xs, MOST_SIZES)
        if scale == "sizes"
        else {}
        if crowded
        else {"dtick": 1}
    )
    named = legend or (bool(bands) and not small)
    right = 24 if scale == "percent" else 8 if small else 12  # room for the last of the ticks
    nulls = [trace for index, band in enumerate(bands) for trace in _null(band, index)]
    return framed(
        height,
        [*nulls, *(trace for line in lines for trace in line_traces(line, describe, legend))],
        x={"title": "" if small else across, "showgrid": False, "range": reach, **step},
        y={"title": "" if small else upwards, "range": span},
        shapes=[] if reference is None else [level_line(reference, **REFERENCE)],
        margin={"l": 34, "r": right, "t": 6, "b": 24}
        if small
        else {"l": 48, "r": right, "t": 34 if named else 8, "b": 40},
        showlegend=named,
        legend=LEGEND,
    )


def size_axis(sizes: Iterable[float], most: int) -> dict[str, Any]:
    """An axis of sizes: logarithmic, its ticks at the sizes that were run, or at every other one where they crowd."""
    ticks = sorted(size for size in sizes if size > 0.0)
    kept = ticks[:: 1 + len(ticks) // (most + 1)]
    return {"type": "log", "tickmode": "array", "tickvals": kept, "ticktext": [f"{tick:g}" for tick in kept]}


def hover_text(what: str, unit: str, level: float, *, nats: bool = False) -> Describe:
    """Hover text: what the point is (`what` with `{}` for its position, or `{:.0f}`), the score with its interval, and
    its p-value.

    With `nats` the score is a loss difference: its sign is shown, and it is also given as a change of perplexity.
    """

    def describe(name: str, x: float, score: Score) -> str:
        shown = interval(score, signed=nats)
        parts = [f"<b>{escape(name)}</b>, {what.replace('{}', '{:g}').format(x)}", f"{shown} {unit}".rstrip()]
        if nats:
            parts.append(f"perplexity {in_perplexity(score.value)}")
        if score.p_adjusted is not None:
            verdict = "distinguished from zero" if is_resolved(score, level) else "not distinguishable from zero"
            parts.append(f"adjusted p {probability(score.p_adjusted)}: {verdict}")
        if score.mde is not None:
            parts.append(f"detectable above {tidy(score.mde)}")
        return "<br>".join(parts)

    return describe


def in_perplexity(nats: float) -> str:
    """A difference in nats as the change of perplexity that it means: 100 (e^x - 1) percent.

    >>> in_perplexity(0.1), in_perplexity(-0.006), in_perplexity(6.45)
    ('+10.5 %', '−0.6 %', '×633')
    """
    if nats > math.log(10):
        return f"×{math.exp(min(nats, 700.0)):,.0f}" if nats < 30 else "×10^" + f"{nats / math.log(10):.0f}"
    return f"{100 * math.expm1(nats):+.1f} %".replace("-", "−")


def common_span(rows: Sequence[Rows]) -> tuple[float, float] | None:
    """The vertical range that holds all of several figures."""
    return limits(bound for row in rows for score in row.values() for bound in (score.value, score.low, score.high))


def line_traces(line: Line, describe: Describe, named: bool = False) -> list[Trace]:
    """A line with its intervals as a ribbon; `named` names it above the figure."""
    colour, ribbon, symbol = series_style(line.slot)
    xs = sorted(line.rows)
    symbols: Any = [f"{symbol}-open" if x in line.hollow else symbol for x in xs] if line.hollow else symbol
    drawn = scatter(
        x=xs,
        y=[line.rows[x].value for x in xs],
        mode="lines+markers",
        line={"color": colour, "width": 2},
        marker={"color": colour, "symbol": symbols, "size": 6.5},
        text=[describe(line.name, x, line.rows[x]) for x in xs],
        legendgroup=line.name,
        name=escape(line.name),
        showlegend=named,
    )
    dots = {"color": faded(colour, 0.4), "size": 4.5, "line": {"width": 0}}
    draws = [
        scatter(x=[x for x, _ in line.draws], y=[value for _, value in line.draws], mode="markers", marker=dots,
                legendgroup=line.name, name=escape(line.name), showlegend=False)
    ] if line.draws else []  # fmt: skip
    return [*area(line.rows, ribbon, line.name), *draws, drawn]


def _null(band: Band, index: int) -> list[Trace]:
    opacity, dash = BAND_OPACITY[index % len(BAND_OPACITY)], BAND_DASH[index % len(BAND_DASH)]
    xs = sorted(band.rows)
    middle = scatter(
        x=xs,
        y=[band.rows[x].value for x in xs],
        mode="lines" if len(xs) > 1 else "markers",
        line={"color": light("zero"), "width": 1.5, "dash": dash},
        marker={"color": light("zero"), "symbol": "line-ew-open", "size": 12},
        text=[f"{escape(band.name)}<br>{interval(band.rows[x])}" for x in xs],
        legendgroup=band.name,
        name=escape(band.name),
    )
    return [*area(band.rows, faded(light("muted"), opacity), band.name), middle]


def area(rows: Rows, colour: str, group: str) -> list[Trace]:
    """The intervals of a line as one filled area; nothing where fewer than two positions have an interval."""
    bounded = [
        (x, score.low, score.high)
        for x, score in sorted(rows.items())
        if score.low is not None and score.high is not None
    ]
    if len(bounded) < 2:
        return []
    xs, low, high = zip(*bounded, strict=True)
    return [filled(xs, low, high, colour, legendgroup=group, name=escape(group), showlegend=False)]


def fan(
    curves: Mapping[int, Rows],
    bands: Sequence[Band] = (),
    *,
    depth: int,
    describe: Describe,
    height: int,
    span: tuple[float, float] | None = None,
    sizes: bool = False,
) -> Figure:
    """A thin curve for each layer with its intervals as fine bars, over the bands of the nulls.

    `sizes` says that positions are sizes of a change, on a logarithmic axis.
    """
    axis = size_axis({x for rows in curves.values() for x in rows}, MOST_SIZES) if sizes else {}
    nulls = [trace for band in bands for trace in area(band.rows, faded(light("muted"), 0.2), band.name)]
    return framed(
        height,
        [*nulls, *(_curve(layer, rows, depth, describe) for layer, rows in curves.items())],
        x={"showgrid": False, **axis},
        y={"range": span},
        margin={"l": 34, "r": 8, "t": 6, "b": 24},
    )


def _curve(layer: int, rows: Rows, depth: int, describe: Describe) -> Trace:
    colour = depth_colour(layer, depth)
    return scatter(
        x=list(rows),
        y=[score.value for score in rows.values()],
        error_y=whiskers(rows.values(), faded(colour, 0.35), thickness=1),
        mode="lines+markers",
        line={"color": colour, "width": 1.6},
        marker={"color": colour, "size": 4},
        text=[describe(f"layer {layer}", x, score) for x, score in rows.items()],
        name=f"layer {layer}",
    )
