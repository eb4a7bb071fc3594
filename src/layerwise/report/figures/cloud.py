"""Points in a plane, coloured by position: the outputs of one layer, laid out so that like stands near like."""

from __future__ import annotations

from collections.abc import Mapping

from layerwise.report.figures.figure import Figure, scatter
from layerwise.report.figures.frame import framed
from layerwise.report.palette import depth_colour
from layerwise.results.rows import Score

HEIGHT = 420


def cloud(across: Mapping[tuple[int, int], Score], upwards: Mapping[tuple[int, int], Score], *, depth: int) -> Figure:
    """A dot for each pair (image, position), violet where the layer ran first and yellow where it ran last.

    The axes of such a layout have no unit and no zero, so they are not drawn; only what stands near what can be read.
    """
    bare = {"showgrid": False, "zeroline": False, "showticklabels": False, "showline": False, "ticks": ""}
    pairs = [pair for pair in across if pair in upwards]
    dots = scatter(
        x=[across[pair].value for pair in pairs],
        y=[upwards[pair].value for pair in pairs],
        mode="markers",
        marker={
            "color": [depth_colour(position, depth) for _, position in pairs],
            "size": 5,
            "opacity": 0.8,
            "line": {"width": 0},
        },
        text=[f"image {image}, at position {position}" for image, position in pairs],
        hovertemplate="%{text}<extra></extra>",
    )
    margin = {"l": 8, "r": 8, "t": 8, "b": 8}
    return framed(HEIGHT, [dots], x=bare, y={**bare, "scaleanchor": "x"}, margin=margin)
