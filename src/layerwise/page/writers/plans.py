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
    """Return an SVG of the wiring of a plan: the matrix A in x_j = sum_i A[j,i] d_i.

    x_j is what step j reads, and d_i is the update that step i adds. Steps run from top to bottom; the last row is the
    output. A cell is filled if step j reads update i, and fainter for a smaller weight. The embedding is gray, and
    layers range from violet to yellow. Plans of more than `MAX_DRAWN_STEPS` steps are not drawn.
    """
    if plan.cost().evaluations > MAX_DRAWN_STEPS:
        return Markup()
    rows = plan.matrix()
    size = len(rows)
    colors = [EMBEDDING, *(depth_color(layer, depth) for layer in plan.order())]
    paths: dict[tuple[str, float], list[str]] = defaultdict(list)
    for column in range(size):
        for first, last, weight in _runs([row[column] for row in rows]):
            paths[colors[column], _opacity(weight)].append(f"M{column} {first}h1v{last - first}h-1z")
    return html_part("wiring", size=size, title=title, paths=paths)


def _runs(column: Sequence[float]) -> list[tuple[int, int, float]]:
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
