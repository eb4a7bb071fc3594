"""Points in a plane: two scores of each layer or of each phase, or the layout of a layer's outputs."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from layerwise.report.figures.figure import Figure, Trace, scatter
from layerwise.report.figures.frame import diagonal, filled, framed, interval, limits, series_style, whiskers
from layerwise.report.figures.palette import depth_colour, faded, light
from layerwise.report.text.number_format import fixed
from layerwise.results.rows import Score

MARGIN = {"l": 48, "r": 16, "t": 14, "b": 40}
CROWDED = 1_000
"""From so many dots on they are smaller."""
Points = Mapping[tuple[int, int, int], Score]
"""A score for each (image, layer, position)."""
Forecasts = Mapping[str, Mapping[str, tuple[Score, Score]]]
"""Arm to phase to (predicted, measured)."""


def layout_scatter(across: Points, upwards: Points, *, depth: int, by_layer: bool = False) -> Figure:
    """A dot for each (image, layer, position), violet where the layer ran first and yellow where it ran last.

    With `by_layer` the colour is the layer's in place of the position's. The axes of such a layout have no unit and no
    zero, so they are not drawn; only what stands near what can be read.
    """
    bare = {"showgrid": False, "zeroline": False, "showticklabels": False, "showline": False, "ticks": ""}
    points = [point for point in across if point in upwards]
    dots = scatter(
        x=[across[point].value for point in points],
        y=[upwards[point].value for point in points],
        mode="markers",
        marker={
            "color": [depth_colour(layer if by_layer else position, depth) for _, layer, position in points],
            "size": 5 if len(points) < CROWDED else 3.5,
            "opacity": 0.8,
            "line": {"width": 0},
        },
        text=[f"image {image}, layer {layer} at position {position}" for image, layer, position in points],
    )
    return framed(420, [dots], x=bare, y={**bare, "scaleanchor": "x"}, margin={"l": 8, "r": 8, "t": 8, "b": 8})


def phase_scatter(forecasts: Forecasts, slots: Mapping[str, int], *, bar: float) -> Figure:
    """The time of each phase's step against its prediction, as shares of a uniform step.

    The grey band is `bar`, a share of the prediction, to either side of equality.
    """
    pairs = [pair for phases in forecasts.values() for pair in phases.values()]
    span = limits(bound for _, measured in pairs for bound in (measured.value, measured.low, measured.high))
    reach = limits(predicted.value for predicted, _ in pairs)
    top = max((predicted.value for predicted, _ in pairs), default=1.0) * 1.1
    allowed = filled(
        [0.0, top],
        [0.0, (1 - bar) * top],
        [0.0, (1 + bar) * top],
        faded(light("muted"), 0.16),
        name=f"within {100 * bar:g} %",
    )
    arms = (_phases(arm, phases, slots[arm]) for arm, phases in forecasts.items() if phases)
    return framed(
        380,
        [allowed, diagonal(0.0, top, "as predicted"), *arms],
        x={"title": "predicted, FLOPs of a step as a share of uniform's", "range": reach},
        y={"title": "measured, time of a step", "range": span},
        margin={"l": 48, "r": 16, "t": 8, "b": 44},
    )


def _phases(arm: str, phases: Mapping[str, tuple[Score, Score]], slot: int) -> Trace:
    colour, _, symbol = series_style(slot)
    return scatter(
        x=[predicted.value for predicted, _ in phases.values()],
        y=[measured.value for _, measured in phases.values()],
        error_y=whiskers((measured for _, measured in phases.values()), colour, thickness=1.5),
        mode="markers",
        marker={"color": colour, "symbol": symbol, "size": 9},
        text=[
            f"<b>{escape(arm)}</b>, {escape(phase)}<br>predicted {fixed(predicted.value, 3)},"
            f" measured {interval(measured)}"
            for phase, (predicted, measured) in phases.items()
        ],
        legendgroup=arm,
        name=escape(arm),
    )


def _dots(colours: list[str], **more: Any) -> dict[str, Any]:
    return {"color": colours, "size": 9, "line": {"width": 1, "color": light("card")}, **more}
