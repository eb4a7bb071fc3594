"""Similarity maps of hidden states, and the profile of how alike neighbours are."""

from __future__ import annotations

from itertools import count
from typing import Any

from layerwise.report.figures.figure import Figure, Trace, heatmap, scatter
from layerwise.report.figures.frame import framed
from layerwise.report.palette import DIVERGING, SERIES, SYMBOLS, VIRIDIS, light
from layerwise.report.similarity import Matrix

MOST_TICKS = 26
MOST_LABELS = 8  # of a map, on each side


def similarity_map(values: Matrix, low: float, high: float, *, diverging: bool = False) -> Figure:
    """A square map of hidden states 0 (embedding) to the last layer; the caller gives the scale, so maps compare."""
    colours = [light_colour for light_colour, _ in DIVERGING] if diverging else list(VIRIDIS)
    span = [-0.5, len(values) - 0.5]
    plain = {
        "showgrid": False,
        "zeroline": False,
        "ticks": "",
        "constrain": "domain",
        "tick0": 0,
        "dtick": next(step for step in count(1) if step * MOST_LABELS >= len(values)),
    }
    grid = heatmap(
        z=[list(row) for row in values],
        zmin=low,
        zmax=high,
        colorscale=[[index / (len(colours) - 1), colour] for index, colour in enumerate(colours)],
        colorbar=_colour_bar(),
        hovertemplate="hidden states %{y} and %{x}<br><b>%{z:.3f}</b><extra></extra>",
        hoverongaps=False,
    )
    return framed(
        310,
        [grid],
        x={**plain, "range": span, "side": "top"},
        y={**plain, "range": span[::-1], "scaleanchor": "x"},
        margin={"l": 28, "r": 8, "t": 4, "b": 4},
    )


def _colour_bar() -> dict[str, Any]:
    return {
        "orientation": "h",
        "thickness": 8,
        "len": 0.9,
        "y": -0.02,
        "yanchor": "top",
        "outlinewidth": 0,
        "tickfont": {"color": light("muted"), "size": 11},
        "nticks": 5,
    }


def adjacent(named: dict[str, Matrix]) -> Figure:
    """How alike each hidden state is to the next one, a line per measure: zone borders are the dips."""
    ticks = 1 if len(next(iter(named.values()))) <= MOST_TICKS else None
    return framed(
        310,
        [_profile(slot, name, values) for slot, (name, values) in enumerate(named.items())],
        x={"title": "hidden state j, against j + 1", "dtick": ticks},
        y={"title": "similarity", "zeroline": False},
        margin={"l": 48, "r": 12, "t": 28, "b": 40},
        showlegend=True,
        hovermode="x unified",
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "font": {"size": 12}},
    )


def _profile(slot: int, name: str, values: Matrix) -> Trace:
    steps = range(len(values) - 1)
    return scatter(
        x=list(steps),
        y=[values[step][step + 1] for step in steps],
        name=name,
        mode="lines+markers",
        line={"color": SERIES[slot][0], "width": 2},
        marker={"symbol": SYMBOLS[slot], "size": 6},
        hovertemplate="%{y:.3f}",
    )
