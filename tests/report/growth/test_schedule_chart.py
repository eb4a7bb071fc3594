"""A schedule drawn: a cell for each part and phase, as wide as its steps and as full as its share."""

from __future__ import annotations

import re

import pytest

from layerwise.report.growth.lookup import GrowthScores
from layerwise.report.growth.schedule_chart import EDGE, WIDTH, schedule_diagram
from report import grown
from report.grown import row

RECT = re.compile(r'<rect x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)" fill-opacity="([\d.]+)"')


def cells(drawn: str) -> list[tuple[float, ...]]:
    return [tuple(map(float, match)) for match in RECT.findall(drawn)]


@pytest.fixture(scope="module")
def found() -> GrowthScores:
    return GrowthScores.of(grown.scores(12))


def test_every_part_has_a_cell_in_every_phase(found: GrowthScores) -> None:
    assert len(cells(schedule_diagram(found, "published", steps=744))) == 14 * 6
    assert len(cells(schedule_diagram(found, "uniform", steps=744))) == 14


def test_a_phase_is_as_wide_as_its_steps_and_a_shorter_training_ends_earlier(found: GrowthScores) -> None:
    whole = cells(schedule_diagram(found, "uniform", steps=600))
    half = cells(schedule_diagram(found, "uniform", steps=1200))
    assert whole[0][2] == pytest.approx(WIDTH - 1)
    assert half[0][2] == pytest.approx(WIDTH / 2 - 1)
    first, second = found.phases("stacking")
    placed = sorted({x for x, *_ in cells(schedule_diagram(found, "stacking", steps=second.end))})
    assert placed == pytest.approx([EDGE, EDGE + WIDTH * first.steps / second.end], abs=0.01)


def test_cells_are_as_full_as_their_share_and_what_is_absent_is_a_frame(found: GrowthScores) -> None:
    drawn = schedule_diagram(found, "stacking", steps=750)
    assert drawn.count('class="nothing"') == 8
    assert {cell[4] for cell in cells(drawn)} == {0.0, 1.0}
    assert {cell[4] for cell in cells(schedule_diagram(found, "published", steps=750))} == {0.667, 1.0}


def test_a_cell_tells_what_it_means(found: GrowthScores) -> None:
    drawn = schedule_diagram(found, "published", steps=744)
    assert "<title>gastrulation, steps 0 to 185: layer 4 learns, 1.00 of its cost</title>" in drawn
    assert "layer 0 frozen, above something that learns, 0.67 of its cost" in drawn
    assert "layer 11 drawn at random" in schedule_diagram(found, "ramp", steps=744)


def test_the_picture_is_told_to_who_does_not_see_it(found: GrowthScores) -> None:
    drawn = schedule_diagram(found, "stacking", steps=750)
    spoken = re.search(r'aria-label="([^"]*)"', drawn)
    assert spoken is not None
    assert spoken[1] == (
        "Schedule of stacking, depth by time: shallow, steps 0 to 249: layers 0-3, embedding, head learn; stacked,"
        " steps 250 to 749: layers 0-11, embedding, head learn"
    )


def test_rows_are_named_while_they_can_be_read() -> None:
    deep = GrowthScores.of([row("schedule", "a", "0-10 all", str(layer), 1.0) for layer in range(48)])
    names = re.findall(r">(\d+)</text>", schedule_diagram(deep, "a", steps=10))
    assert "0" in names
    assert len(names) < 24
    assert schedule_diagram(deep, "a", steps=10).count("<rect") == 48
