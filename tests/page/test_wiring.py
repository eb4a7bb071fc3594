"""A plan drawn: position, color and weight of every cell of the matrix."""

import re
from collections.abc import Iterator
from xml.etree import ElementTree

import pytest

from layerwise.page.figures.palette import EMBEDDING, depth_color
from layerwise.page.writers.plans import FAINTEST, draw_wiring
from layerwise.plan import Plan

DEPTH = 6
PLANS = [
    "0-5",
    "0 1 4 5",
    "0 4-1 5",
    "0 (1|2|3|4) 5",
    "0 (1|2)*3 5",
    "0 (1 2|3):sum 5",
    "[0-2]*2 3-5",
    "5 (1|3):gain=2",
]


def cells(drawing: str) -> Iterator[tuple[int, int, str, float]]:
    for path in ElementTree.fromstring(drawing).iter("path"):
        opacity = float(path.get("opacity", "1"))
        for column, top, height in re.findall(r"M(\d+) (\d+)h1v(\d+)h-1z", path.get("d", "")):
            for row in range(int(top), int(top) + int(height)):
                yield row, int(column), path.get("fill", ""), opacity


@pytest.mark.parametrize("text", PLANS)
def test_every_matrix_cell_is_painted_once(text: str) -> None:
    plan = Plan.parse(text)
    rows = plan.matrix()
    writers = [EMBEDDING, *(depth_color(layer, DEPTH) for layer in plan.order())]
    expected = {
        (row, column): (writers[column], min(1.0, round(FAINTEST + (1 - FAINTEST) * weight, 2)))
        for row, weights in enumerate(rows)
        for column, weight in enumerate(weights)
        if weight
    }
    painted = list(cells(draw_wiring(plan, DEPTH)))
    assert len(painted) == len(expected)
    assert {(row, column): (color, opacity) for row, column, color, opacity in painted} == expected


def test_titled_drawings_are_accessible() -> None:
    assert "<title>a &lt; b</title>" in draw_wiring(Plan.identity(3), 3, title="a < b")
    assert 'aria-hidden="true"' in draw_wiring(Plan.identity(3), 3)
