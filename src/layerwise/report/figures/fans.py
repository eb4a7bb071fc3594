"""A fan of curves, one a layer, coloured by depth: how a model answers to more and more of the same change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from layerwise.report.figures.figure import Figure, Trace, scatter
from layerwise.report.figures.frame import framed
from layerwise.report.figures.lines import MOST_SIZES, Tell, area, size_axis
from layerwise.report.palette import depth_colour, faded, light
from layerwise.report.series import Band, Rows


def fan(
    curves: Mapping[int, Rows],
    bands: Sequence[Band] = (),
    *,
    depth: int,
    tell: Tell,
    height: int,
    span: tuple[float, float] | None = None,
    sizes: bool = False,
) -> Figure:
    """A thin curve for each layer with its intervals as fine bars, over the bands of the nulls.

    `sizes` says that places are sizes of a change, on a logarithmic axis.
    """
    axis = size_axis({place for rows in curves.values() for place in rows}, MOST_SIZES) if sizes else {}
    nulls = [trace for band in bands for trace in area(band.rows, faded(light("muted"), 0.2), band.name)]
    return framed(
        height,
        [*nulls, *(_curve(layer, rows, depth, tell) for layer, rows in curves.items())],
        x={"showgrid": False, **axis},
        y={"range": span},
        margin={"l": 34, "r": 8, "t": 6, "b": 24},
    )


def _curve(layer: int, rows: Rows, depth: int, tell: Tell) -> Trace:
    colour = depth_colour(layer, depth)
    return scatter(
        x=list(rows),
        y=[score.value for score in rows.values()],
        error_y=_bars(rows, colour),
        mode="lines+markers",
        line={"color": colour, "width": 1.6},
        marker={"color": colour, "size": 4},
        text=[tell(f"layer {layer}", place, score) for place, score in rows.items()],
        hovertemplate="%{text}<extra></extra>",
        name=f"layer {layer}",
    )


def _bars(rows: Rows, colour: str) -> dict[str, Any]:
    scores = list(rows.values())
    return {
        "type": "data",
        "symmetric": False,
        "array": [0.0 if score.high is None else score.high - score.value for score in scores],
        "arrayminus": [0.0 if score.low is None else score.value - score.low for score in scores],
        "color": faded(colour, 0.35),
        "thickness": 1,
        "width": 0,
    }
