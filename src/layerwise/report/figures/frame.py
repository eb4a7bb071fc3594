"""The frame every figure shares: fonts, margins, quiet axes, colours by role; and the text inside hover boxes."""

from __future__ import annotations

from html import escape
from typing import Any

import plotly.graph_objects as go

from layerwise.report.notation import between, probability, verdict
from layerwise.report.palette import SERIES, SYMBOLS, faded, light
from layerwise.results.rows import Score

FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif'
DELTA_AXIS = "Δ NLL (nats per token)"


def framed(height: int, **layout: Any) -> go.Figure:
    """An empty figure in the house frame; `layout` adds to it."""
    figure = go.Figure()
    figure.update_layout(
        template="none",
        height=height,
        autosize=True,
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": FONT, "size": 13, "color": light("ink")},
        margin={"l": 64, "r": 16, "t": 16, "b": 52},
        showlegend=False,
        hoverlabel={
            "bgcolor": light("card"),
            "bordercolor": light("quiet"),
            "font": {"color": light("ink"), "size": 13},
            "align": "left",
        },
    )
    figure.update_layout(**layout)
    figure.update_xaxes(**axis())
    figure.update_yaxes(**axis(zeroline=True))
    return figure


def axis(**more: Any) -> dict[str, Any]:
    """A quiet axis: pale grid, no box, muted ticks."""
    return {
        "gridcolor": light("grid"),
        "linecolor": light("quiet"),
        "zerolinecolor": light("zero"),
        "zerolinewidth": 1.5,
        "zeroline": False,
        "tickfont": {"color": light("muted"), "size": 12},
        "title": {"font": {"color": light("muted"), "size": 13}, "standoff": 10},
        "automargin": True,
        **more,
    }


def series_style(slot: int) -> tuple[str, str, str]:
    """Line colour, band colour and marker of a series slot."""
    colour = SERIES[slot % len(SERIES)][0]
    return colour, faded(colour, 0.14), SYMBOLS[slot % len(SYMBOLS)]


def hover(title: str, plan: str, score: Score, level: float) -> str:
    """The hover text of one plan: what it is, its effect with its interval, and the verdict.

    Plotly reads a little HTML here, so what users named is escaped.
    """
    shown = plan if len(plan) <= 70 else plan[:67] + "…"
    lines = [
        f"<b>{escape(title)}</b>",
        f"<span style='font-family:monospace'>{escape(shown)}</span>",
        f"{between(score.value, score.low, score.high, signed=True)} nats per token",
        f"adjusted p {probability(score.p_adjusted)} · {verdict(score, level)}",
    ]
    return "<br>".join(lines)
