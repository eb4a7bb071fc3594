"""Similarity maps of hidden states, and the profile of how alike neighbours are."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go

from layerwise.report.figures.frame import framed
from layerwise.report.palette import DIVERGING, SERIES, SYMBOLS, VIRIDIS, light
from layerwise.report.similarity import Matrix


def similarity_map(values: Matrix, low: float, high: float, *, diverging: bool = False) -> go.Figure:
    """A square map of hidden states 0 (embedding) to the last layer; the caller gives the scale, so maps compare."""
    colours = [light_colour for light_colour, _ in DIVERGING] if diverging else list(VIRIDIS)
    figure = framed(330, margin={"l": 36, "r": 8, "t": 8, "b": 8})
    figure.add_trace(
        go.Heatmap(
            z=[list(row) for row in values],
            zmin=low,
            zmax=high,
            colorscale=[[index / (len(colours) - 1), colour] for index, colour in enumerate(colours)],
            colorbar=_colour_bar(),
            hovertemplate="hidden states %{y} and %{x}<br><b>%{z:.3f}</b><extra></extra>",
            hoverongaps=False,
        )
    )
    span = [-0.5, len(values) - 0.5]
    figure.update_xaxes(range=span, constrain="domain", showgrid=False, side="top", ticks="")
    figure.update_yaxes(range=span[::-1], scaleanchor="x", constrain="domain", showgrid=False, zeroline=False, ticks="")
    return figure


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


def adjacent(named: dict[str, Matrix]) -> go.Figure:
    """How alike each hidden state is to the next one, a line per measure: zone borders are the dips."""
    figure = framed(330, margin={"l": 56, "r": 12, "t": 28, "b": 48}, showlegend=True, hovermode="x unified")
    figure.update_layout(legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "font": {"size": 12}})
    for slot, (name, values) in enumerate(named.items()):
        steps = range(len(values) - 1)
        figure.add_trace(
            go.Scatter(
                x=list(steps),
                y=[values[step][step + 1] for step in steps],
                name=name,
                mode="lines+markers",
                line={"color": SERIES[slot][0], "width": 2},
                marker={"symbol": SYMBOLS[slot], "size": 6},
                hovertemplate="%{y:.3f}",
            )
        )
    figure.update_xaxes(
        title_text="hidden state j, against j + 1", dtick=1 if len(next(iter(named.values()))) <= 26 else None
    )
    figure.update_yaxes(title_text="similarity", zeroline=False)
    return figure
