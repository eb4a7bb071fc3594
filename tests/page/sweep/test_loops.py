"""Loops and gains: the best per window, the fitted line, and the finding."""

import pytest

from layerwise.results.selection import Rows
from layerwise.studies.sweep.page_rows import FITTED, find_best, fit_line
from tools.golden.outputs import stored

WIDTHS = (3, 5)
RUN = stored("sweep-loops-planted")
"""The best of M layers are M - 1 loops, the best gain is (M + 1) / 2."""
OTHER = stored("sweep-planted")


def test_the_best_number_of_loops_has_the_smallest_effect() -> None:
    rows = Rows(find_best(RUN)).where(task="all", against=None)
    loops, gains = (
        {row.affected: (row.value, row.low, row.high) for row in rows.where(family=family)}
        for family in ("looped", "gain_sweep")
    )
    assert loops == {width: (width - 1, width - 2, width) for width in WIDTHS}
    assert gains == {width: (half := (width + 1) // 2, half - 1, half + 1) for width in WIDTHS}
    assert {row.low for row in Rows(find_best(RUN)).where(task="text")} == {None}
    assert not list(find_best(OTHER))


def test_the_line_goes_through_the_mean_of_the_best_counts() -> None:
    assert fit_line(RUN) == pytest.approx((-1.0, 1.0))
    assert sorted(row.value for row in Rows(find_best(RUN)).where(against=FITTED)) == pytest.approx([2.0, 4.0])
    assert fit_line(OTHER) is None
