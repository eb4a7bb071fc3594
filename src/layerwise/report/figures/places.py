"""Layers by the positions they stand at: one number for each pair, as colour."""

from __future__ import annotations

from collections.abc import Mapping

from layerwise.report.figures.figure import Figure, heatmap, scatter
from layerwise.report.figures.frame import framed
from layerwise.report.notation import between
from layerwise.report.palette import VIRIDIS, light
from layerwise.results.rows import Score

HEIGHT = 330


def place_grid(scores: Mapping[tuple[int, int], Score], *, depth: int, most: float, what: str) -> Figure:
    """Pairs (layer, position): position across, layers downwards; brighter is greater, up to `most`.

    The dotted line is the order of training: there every layer stands at its own place.
    """
    places = list(range(depth))
    plain = {"showgrid": False, "zeroline": False, "ticks": "", "range": [-0.5, depth - 0.5]}
    found = [[scores.get((layer, position)) for position in places] for layer in places]
    grid = heatmap(
        x=places,
        y=places,
        z=[[None if score is None else score.value for score in row] for row in found],
        text=[[_told(score, what) for score in row] for row in found],
        hovertemplate="%{text}<extra></extra>",
        hoverongaps=False,
        zmin=0.0,
        zmax=most,
        xgap=1,
        ygap=1,
        colorscale=[[index / (len(VIRIDIS) - 1), colour] for index, colour in enumerate(VIRIDIS)],
        colorbar={"thickness": 9, "outlinewidth": 0, "tickfont": {"color": light("muted"), "size": 11}},
    )
    order_of_training = scatter(
        x=[-0.5, depth - 0.5],
        y=[-0.5, depth - 0.5],
        mode="lines",
        line={"color": "#ffffff", "dash": "dot", "width": 1.2},
        opacity=0.7,
        hoverinfo="skip",
    )
    return framed(
        HEIGHT,
        [grid, order_of_training],
        x={"title": "position", **plain},
        y={"title": "layer", **plain, "range": [depth - 0.5, -0.5]},
        margin={"l": 40, "r": 4, "t": 6, "b": 40},
    )


def _told(score: Score | None, what: str) -> str:
    if score is None:
        return ""
    layer, _, position = score.subject.partition(",")
    return f"<b>layer {layer} at position {position}</b><br>{what} {between(score.value, score.low, score.high)}"
