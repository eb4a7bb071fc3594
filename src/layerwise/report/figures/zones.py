"""The zones of the depth on the map of cosines and over relative depth, and the variance of the states by depth."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import count

from layerwise.report.figures.figure import Figure, bar, heatmap, scatter
from layerwise.report.figures.frame import (
    LEGEND,
    colour_scale,
    framed,
    interval,
    row_axis,
    series_style,
    whiskers,
)
from layerwise.report.figures.heatmaps import BAR, MOST_LABELS, PLAIN
from layerwise.report.page.palette import SERIES, VIRIDIS, light
from layerwise.report.sweep.zones import PlanZones

HEIGHT = 310
ROW = 44
PARTS = {"beginning": SERIES[2][0], "middle": SERIES[0][0], "ending": SERIES[1][0]}


def zone_map(zones: PlanZones, low: float) -> Figure:
    """The cosines of all pairs of states from `low` to 1, every zone framed."""
    states = len(zones.cosine)
    numbers = list(range(1, states + 1))
    ends = [0.5, states + 0.5]
    step = next(step for step in count(1) if step * MOST_LABELS >= states)
    axis = {**PLAIN, "constrain": "domain", "tick0": 1, "dtick": step}
    frames = [
        {
            "type": "rect", "x0": first - 0.5, "x1": last + 0.5, "y0": first - 0.5, "y1": last + 0.5,
            "line": {"color": "#ffffff", "width": 2},
        }
        for first, last in (zones.ranges if len(zones.ranges) > 1 else ())
    ]  # fmt: skip
    cells = heatmap(
        x=numbers, y=numbers, z=[list(row) for row in zones.cosine], zmin=low, zmax=1.0,
        colorscale=colour_scale(VIRIDIS),
        colorbar={**BAR, "orientation": "h", "thickness": 8, "len": 0.9, "y": -0.02, "yanchor": "top", "nticks": 5},
        hovertemplate="states %{y} and %{x}<br><b>%{z:.3f}</b><extra></extra>",
    )  # fmt: skip
    return framed(
        HEIGHT,
        [cells],
        x={**axis, "range": ends, "side": "top"},
        y={**axis, "range": ends[::-1], "scaleanchor": "x"},
        shapes=frames,
        margin={"l": 28, "r": 8, "t": 4, "b": 4},
    )


def variance_by_depth(named: Sequence[tuple[str, PlanZones]]) -> Figure:
    """The variance of every state by its number, a line for each plan, on a logarithmic axis."""
    traces = []
    for slot, (name, zones) in enumerate(named):
        colour, _, symbol = series_style(slot)
        scores = list(zones.variance.values())
        traces.append(
            scatter(
                x=list(zones.variance), y=[score.value for score in scores], name=name, mode="lines+markers",
                line={"color": colour, "width": 2}, marker={"symbol": symbol, "size": 6},
                error_y=whiskers(scores, colour, thickness=1),
                text=[f"state {number}<br>{interval(score)}" for number, score in zones.variance.items()],
            )
        )  # fmt: skip
    return framed(
        HEIGHT,
        traces,
        x={"title": "hidden state", "showgrid": False},
        y={"title": "variance", "type": "log", "zeroline": False},
        margin={"l": 48, "r": 12, "t": 34, "b": 40},
        showlegend=len(named) > 1,
        legend=LEGEND,
    )


def zones_side_by_side(named: Sequence[tuple[str, PlanZones]]) -> Figure:
    """The zones of every model as trained, a row each, over relative depth: 0 % is before the first layer."""
    traces = []
    for part, colour in PARTS.items():
        drawn = [
            (row, name, zone, 100 / len(zones.cosine))
            for row, (name, zones) in enumerate(named)
            for zone in zones.ranges
            if zones.part(zone) == part
        ]
        traces.append(
            bar(
                x=[(last - first + 1) * layer for _, _, (first, last), layer in drawn],
                base=[(first - 1) * layer for _, _, (first, _), layer in drawn],
                y=[row for row, *_ in drawn],
                orientation="h",
                name=part,
                marker={"color": colour, "line": {"color": light("card"), "width": 2}},
                text=[
                    f"<b>{escape(name)}</b>, {part}<br>layers {first - 1} to {last - 1}"
                    for _, name, (first, last), _ in drawn
                ],
            )
        )
    return framed(
        76 + ROW * len(named),
        traces,
        x={"title": "relative depth (%)", "range": [0, 100], "showgrid": False},
        y={**row_axis([name for name, _ in named]), "showgrid": False},
        margin={"l": 48, "r": 12, "t": 34, "b": 40},
        barmode="overlay",
        bargap=0.4,
        showlegend=True,
        legend=LEGEND,
    )
