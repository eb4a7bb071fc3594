"""What each layer is worth: the effect of dropping it, and of swapping it with its neighbour."""

from __future__ import annotations

import math
from collections.abc import Mapping

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from layerwise.report.data import DELTA, Evidence
from layerwise.report.figures.frame import DELTA_AXIS, axis, framed, hover
from layerwise.report.layers import neighbour_swaps, single_skips
from layerwise.report.notation import is_resolved
from layerwise.report.palette import faded, light
from layerwise.results.rows import Score


def importance(evidence: Evidence, task: str) -> go.Figure:
    """A bar a layer with its interval: left, the layer is dropped; right, it changes places with the next one.

    Strong bars are told apart from zero after correction; pale bars are not.
    """
    figure = make_subplots(
        rows=1,
        cols=2,
        shared_yaxes=True,
        horizontal_spacing=0.04,
        subplot_titles=("drop one layer", "swap two neighbours"),
    )
    figure.update_layout(framed(400).layout)
    figure.update_layout(margin={"t": 40}, bargap=0.25)
    panels: tuple[tuple[str, Mapping[int, str]], ...] = (
        ("without layer {0}", single_skips(evidence)),
        ("layers {0} and {1} swapped", neighbour_swaps(evidence)),
    )
    for column, (title, plans) in enumerate(panels, start=1):
        figure.add_trace(_bars(evidence, task, title, plans), row=1, col=column)
    figure.update_xaxes(**axis(dtick=1 if evidence.depth <= 24 else None))
    figure.update_xaxes(title_text="layer", col=1)
    figure.update_xaxes(title_text="first layer of the pair", col=2)
    figure.update_yaxes(**axis(zeroline=True))
    figure.update_yaxes(title_text=DELTA_AXIS, col=1)
    figure.update_annotations(font={"size": 13, "color": light("ink")})
    return figure


def _bars(evidence: Evidence, task: str, title: str, plans: Mapping[int, str]) -> go.Bar:
    level = evidence.data.level
    rows = [(layer, plans[layer], evidence.effect(plans[layer], task, DELTA)) for layer in sorted(plans)]
    measured = [(layer, plan, score) for layer, plan, score in rows if score and math.isfinite(score.value)]
    return go.Bar(
        x=[layer for layer, _, _ in measured],
        y=[score.value for _, _, score in measured],
        error_y=_whiskers([score for _, _, score in measured]),
        marker={
            "color": [
                light("accent") if is_resolved(score, level) else faded(light("muted"), 0.35)
                for _, _, score in measured
            ],
            "line": {"width": 0},
        },
        text=[hover(title.format(layer, layer + 1), plan, score, level) for layer, plan, score in measured],
        textposition="none",
        hovertemplate="%{text}<extra></extra>",
    )


def _whiskers(scores: list[Score]) -> dict[str, object]:
    return {
        "type": "data",
        "symmetric": False,
        "array": [0.0 if score.high is None else score.high - score.value for score in scores],
        "arrayminus": [0.0 if score.low is None else score.value - score.low for score in scores],
        "color": light("ink"),
        "thickness": 1.2,
        "width": 3,
    }
