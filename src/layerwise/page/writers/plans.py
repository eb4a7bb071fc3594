"""The wiring of a plan as a picture."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from markupsafe import Markup

from layerwise.page.figures.palette import EMBEDDING, depth_color
from layerwise.page.markup import html_part
from layerwise.plan import Plan

MAX_DRAWN_STEPS = 500

FAINTEST = 0.3  # a weight near zero still has to be seen


def draw_wiring(plan: Plan, depth: int, *, title: str | None = None) -> Markup:
    """Return the wiring of a plan as an SVG: the matrix A of x_j = sum_i A[j,i] d_i, one column for every update d_i.

    Rows are steps from top to bottom, the last one the output; a filled cell means step j reads update i, fainter for
    smaller weights. The embedding column is gray, the others have the color of their layer (violet to yellow).
    Neighboring equal cells are merged into rectangles, and one color into one path: about 2 kB for 30 layers.
    A plan of more than `MAX_DRAWN_STEPS` steps has no picture.
    """
    if plan.cost().evaluations > MAX_DRAWN_STEPS:
        return Markup()
    rows = plan.matrix()
    size = len(rows)
    colours = [EMBEDDING, *(depth_color(layer, depth) for layer in plan.order())]
    paths: dict[tuple[str, float], list[str]] = defaultdict(list)
    for column in range(size):
        for first, last, weight in _runs([row[column] for row in rows]):
            paths[colours[column], _opacity(weight)].append(f"M{column} {first}h1v{last - first}h-1z")
    return html_part("wiring", size=size, title=title, paths=paths)


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
    return round(min(1.0, FAINTEST + (1.0 - FAINTEST) * abs(weight)), 2)
