"""The window map: every contiguous run of layers, dropped, in one triangle."""

from __future__ import annotations

import math

import plotly.graph_objects as go

from layerwise.report.data import DELTA, Evidence
from layerwise.report.figures.frame import framed, hover
from layerwise.report.layers import skipped_windows
from layerwise.report.palette import VIRIDIS, light


def window_map(evidence: Evidence, task: str) -> go.Figure:
    """The effect of dropping layers first..last: first across, last upwards, single layers along the diagonal.

    The colour is the square root of the effect, so that small effects are told apart; the scale is labelled in nats.
    """
    depth = evidence.depth
    values: list[list[float | None]] = [[None] * depth for _ in range(depth)]
    told = [[""] * depth for _ in range(depth)]
    largest = 0.0
    for (first, last), plan in skipped_windows(evidence).items():
        score = evidence.effect(plan, task, DELTA)
        if score is not None and math.isfinite(score.value):
            values[last][first] = math.sqrt(max(score.value, 0.0))
            told[last][first] = hover(f"without layers {first}–{last}", plan, score, evidence.data.level)
            largest = max(largest, score.value)
    figure = framed(480)
    ticks = [largest * share for share in (0.0, 0.01, 0.1, 0.25, 0.5, 1.0)]
    figure.add_trace(
        go.Heatmap(
            z=values,
            text=told,
            hovertemplate="%{text}<extra></extra>",
            hoverongaps=False,
            zmin=0.0,
            zmax=math.sqrt(largest) or 1.0,
            xgap=1,
            ygap=1,
            colorscale=[[index / (len(VIRIDIS) - 1), colour] for index, colour in enumerate(VIRIDIS)],
            colorbar={
                "title": {"text": "Δ NLL<br>(nats/token)", "font": {"size": 12, "color": light("muted")}},
                "tickvals": [math.sqrt(tick) for tick in ticks],
                "ticktext": [f"{tick:.2g}" for tick in ticks],
                "tickfont": {"color": light("muted")},
                "thickness": 12,
                "outlinewidth": 0,
            },
        )
    )
    figure.update_xaxes(title_text="first layer dropped", range=[-0.5, depth - 0.5], showgrid=False)
    figure.update_yaxes(title_text="last layer dropped", range=[-0.5, depth - 0.5], showgrid=False, zeroline=False)
    return figure
