"""A plan drawn as its wiring: the matrix A of x_j = sum_i A[j,i] d_i, one column for every update d_i.

Rows are read from top to bottom, one for each step and a last one for the output; the cell in row j and column i is
filled when step j reads the update i, the fainter the smaller its weight. The first column is the embedding, in grey;
the others take the colour of the layer that wrote them, violet for the first layer and yellow for the last. So a skip
is a jump of colour, a reversal a gradient that turns, a repeat a stripe, and a parallel group a notch in the staircase.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from layerwise.plan import Plan
from layerwise.report.figures.palette import depth_colour
from layerwise.report.text.markup import Safe, element

EMBEDDING = "#8d919c"
FAINTEST = 0.3  # a weight near zero still has to be seen


def wiring(plan: Plan, depth: int, *, title: str | None = None) -> Safe:
    """The wiring of a plan as an SVG of as many units a side as the matrix has rows.

    Neighbouring cells of one column and one weight are one rectangle, and rectangles of one colour one path: a plan of
    30 layers takes about two kilobytes.
    """
    rows = plan.matrix()
    size = len(rows)
    colours = [EMBEDDING, *(depth_colour(layer, depth) for layer in plan.order())]
    paths: dict[tuple[str, float], list[str]] = defaultdict(list)
    for column in range(size):
        for first, last, weight in _runs([row[column] for row in rows]):
            paths[colours[column], _opacity(weight)].append(f"M{column} {first}h1v{last - first}h-1z")
    shapes = [
        element("path", d="".join(drawn), fill=colour, opacity=None if opacity == 1.0 else f"{opacity:g}")
        for (colour, opacity), drawn in paths.items()
    ]
    return element(
        "svg",
        element("title", title) if title else Safe(""),
        *shapes,
        viewBox=f"0 0 {size} {size}",
        class_="wiring",
        role="img" if title else None,
        aria_hidden=None if title else "true",
        shape_rendering="crispEdges",
    )


def _runs(column: Sequence[float]) -> list[tuple[int, int, float]]:
    """First row, row after the last, and weight of every run of equal weights that are not zero.

    >>> _runs([0.0, 1.0, 1.0, 0.5])
    [(1, 3, 1.0), (3, 4, 0.5)]
    """
    runs: list[tuple[int, int, float]] = []
    start = 0
    for row in range(1, len(column) + 1):
        if row == len(column) or column[row] != column[start]:
            if column[start] != 0.0:
                runs.append((start, row, column[start]))
            start = row
    return runs


def _opacity(weight: float) -> float:
    """A weight of one or more is solid."""
    return round(min(1.0, FAINTEST + (1.0 - FAINTEST) * abs(weight)), 2)
