"""The zones of the depth on the map of cosines, and the variance of the states by depth."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from layerwise.report.figures.figure import Figure, heatmap, scatter
from layerwise.report.figures.frame import (
    LEGEND,
    colour_scale,
    framed,
    interval,
    series_style,
    whiskers,
)
from layerwise.report.figures.heatmaps import BAR, MOST_LABELS, PLAIN
from layerwise.report.page.palette import VIRIDIS
from layerwise.report.sweep.zones import PlanZones

HEIGHT = 310


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
