"""Lines of several models over one another, over percent of the depth."""

from __future__ import annotations

from collections.abc import Sequence

from layerwise.report.figures.axis import Line
from layerwise.report.figures.figure import Figure, level_line
from layerwise.report.figures.frame import REFERENCE, framed
from layerwise.report.figures.lines import SMALL, Describe, line_traces

WHOLE_DEPTH = (-3.0, 103.0)  # nothing to all of the layers, with air for the markers at either end
QUARTERS = [0, 25, 50, 75, 100]


def over_depth(
    lines: Sequence[Line],
    *,
    across: str,
    upwards: str,
    describe: Describe,
    height: int,
    span: tuple[float, float] | None = None,
    share: bool = False,
) -> Figure:
    """A line with its intervals for each model, over 0 to 100 percent; `describe` writes the hover text of a point.

    `span` fixes the vertical axis, for figures that stand side by side; small ones leave the names of the axes to the
    heading above them. With `share` a dotted line stands at one, the model as trained.
    """
    small = height < SMALL
    return framed(
        height,
        [trace for line in lines for trace in line_traces(line, describe)],
        x={
            "title": "" if small else across,
            "showgrid": False,
            "range": WHOLE_DEPTH,
            "tickmode": "array",
            "tickvals": QUARTERS,
            "ticktext": [f"{quarter} %" for quarter in QUARTERS],
        },
        y={"title": "" if small else upwards, "range": span},
        shapes=[level_line(1.0, **REFERENCE)] if share else [],
        margin={"l": 34, "r": 24, "t": 6, "b": 24} if small else {"l": 48, "r": 24, "t": 8, "b": 40},
    )
