"""A fan of curves, one a layer, coloured by depth: how a model answers to more and more of the same change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from layerwise.report.figures.axis import Band, Rows
from layerwise.report.figures.figure import Figure, Trace, scatter
from layerwise.report.figures.frame import framed, whiskers
from layerwise.report.figures.lines import MOST_SIZES, Describe, area, size_axis
from layerwise.report.figures.palette import depth_colour, faded, light


def fan(
    curves: Mapping[int, Rows],
    bands: Sequence[Band] = (),
    *,
    depth: int,
    describe: Describe,
    height: int,
    span: tuple[float, float] | None = None,
    sizes: bool = False,
) -> Figure:
    """A thin curve for each layer with its intervals as fine bars, over the bands of the nulls.

    `sizes` says that positions are sizes of a change, on a logarithmic axis.
    """
    axis = size_axis({x for rows in curves.values() for x in rows}, MOST_SIZES) if sizes else {}
    nulls = [trace for band in bands for trace in area(band.rows, faded(light("muted"), 0.2), band.name)]
    return framed(
        height,
        [*nulls, *(_curve(layer, rows, depth, describe) for layer, rows in curves.items())],
        x={"showgrid": False, **axis},
        y={"range": span},
        margin={"l": 34, "r": 8, "t": 6, "b": 24},
    )


def _curve(layer: int, rows: Rows, depth: int, describe: Describe) -> Trace:
    colour = depth_colour(layer, depth)
    return scatter(
        x=list(rows),
        y=[score.value for score in rows.values()],
        error_y=whiskers(rows.values(), faded(colour, 0.35), thickness=1),
        mode="lines+markers",
        line={"color": colour, "width": 1.6},
        marker={"color": colour, "size": 4},
        text=[describe(f"layer {layer}", x, score) for x, score in rows.items()],
        name=f"layer {layer}",
    )
