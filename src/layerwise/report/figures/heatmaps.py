"""A square map of hidden states by hidden states."""

from __future__ import annotations

from itertools import count

from layerwise.report.derived.similarity import Matrix
from layerwise.report.figures.figure import Figure, heatmap, square
from layerwise.report.figures.frame import colour_scale, framed
from layerwise.report.page.palette import DIVERGING, VIRIDIS, light

TICKS = {"color": light("muted"), "size": 11}
BAR = {"thickness": 9, "outlinewidth": 0, "tickfont": TICKS}
ORANGE_IS_MORE = tuple(colour for colour, _ in DIVERGING)
PLAIN = {"showgrid": False, "zeroline": False, "ticks": ""}
MOST_LABELS = 8  # of a similarity map, on each side


def similarity_map(
    values: Matrix, low: float, high: float, *, diverging: bool = False, zone: tuple[int, int] | None = None
) -> Figure:
    """A square map of hidden states 0 (embedding) to the last layer; the caller gives the scale, so maps compare.

    The first and the last state of a `zone` are the corners of a frame.
    """
    span = [-0.5, len(values) - 0.5]
    step = next(step for step in count(1) if step * MOST_LABELS >= len(values))
    plain = {**PLAIN, "constrain": "domain", "tick0": 0, "dtick": step}
    bar = {"orientation": "h", "thickness": 8, "len": 0.9, "y": -0.02, "yanchor": "top", "nticks": 5}
    grid = heatmap(
        z=[list(row) for row in values],
        zmin=low,
        zmax=high,
        colorscale=colour_scale(ORANGE_IS_MORE if diverging else VIRIDIS),
        colorbar={**BAR, **bar},
        hovertemplate="hidden states %{y} and %{x}<br><b>%{z:.3f}</b><extra></extra>",
    )
    return framed(
        310,
        [grid],
        x={**plain, "range": span, "side": "top"},
        y={**plain, "range": span[::-1], "scaleanchor": "x"},
        shapes=[] if zone is None else [square(zone[0] - 0.5, zone[1] + 0.5, line={"color": "#ffffff", "width": 2})],
        margin={"l": 28, "r": 8, "t": 4, "b": 4},
    )
