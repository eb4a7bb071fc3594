"""Arranging losses: the same arrays from any order of rows, and refusals of unpaired ones."""

import random
from dataclasses import replace

import numpy as np
import pytest

from layerwise.errors import MeasureError
from layerwise.measure.stats.grid import arrange, complete, resampling_unit
from layerwise.results.rows import Loss


def losses(documents: int = 9, windows: int = 2) -> list[Loss]:
    return [
        Loss(plan, task, f"d{document}", window, 100.0 * index + 10 * document + window, 5 + window, window)
        for index, plan in enumerate(("0-1", "1-0"))
        for task in ("code", "prose")
        for document in range(documents)
        for window in range(windows)
    ]


def test_a_grid_holds_every_loss_where_it_belongs() -> None:
    rows = random.Random(0).sample(losses(), 72)  # in whatever order
    grid = arrange(rows)
    assert grid.plans == ("0-1", "1-0")
    assert grid.tasks() == ("code", "prose")
    for row in rows:
        plan, cell = grid.plans.index(row.plan), grid.cells.index((row.task, row.document, row.window))
        assert (grid.nll[plan, cell], grid.hits[plan, cell], grid.tokens[cell]) == (row.nll, row.hits, row.tokens)


def test_units_are_documents_of_their_own_task() -> None:
    grid = arrange(losses())
    assert grid.documents() == 18
    assert grid.unit() == "document"
    assert grid.by_unit(grid.tokens).tolist() == [11.0] * 18
    part = grid.of_task("prose")
    assert part.documents() == 9
    assert part.by_unit(part.nll)[1].tolist() == [2 * (100 + 10 * document) + 1 for document in range(9)]


def test_units_are_windows_where_documents_are_few() -> None:
    grid = arrange(losses(documents=3)).of_task("code")
    assert grid.unit() == "window"
    np.testing.assert_array_equal(grid.by_unit(grid.nll), grid.nll)
    assert [resampling_unit(number) for number in (7, 8)] == ["window", "document"]


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (
            lambda rows: rows[:-1],
            r"'1-0' was measured 0 times instead of once on window 1 of document 'd8' \(task 'prose'",
        ),
        (lambda rows: [*rows, rows[0]], "'0-1' was measured 2 times"),
        (lambda rows: [*rows[:-1], replace(rows[-1], tokens=9)], "'1-0' was measured on 9 tokens instead of 6"),
        (lambda rows: [*rows[:-1], replace(rows[-1], nll=float("nan"))], "'1-0' was measured at a loss of nan nats"),
        (lambda rows: [], "no losses to compare"),
    ],
)
def test_what_is_not_paired_is_refused(change: object, part: str) -> None:
    with pytest.raises(MeasureError, match=part):
        arrange(change(losses()))  # type: ignore[operator]


def test_complete_keeps_the_windows_that_all_plans_share() -> None:
    rows = losses()
    kept = complete(rows[:-1])
    assert kept == [row for row in rows if (row.task, row.document, row.window) != ("prose", "d8", 1)]
    assert arrange(kept).tokens.size == 35
    assert complete(rows) == rows
    assert complete(rows[:1] + rows[-1:]) == []
