"""Crossings of curves that are planted."""

from __future__ import annotations

import pytest

from layerwise.experiments.healing.arms import middle_skipped, random_plan
from layerwise.experiments.healing.rows import crossing
from layerwise.plan import Plan


@pytest.mark.parametrize("at", [0.5, 1.0, 2.25, 3.9])
def test_the_crossing_of_a_line_is_where_it_crosses(at: float) -> None:
    assert crossing({count: count - at for count in range(6)}) == pytest.approx(at)


def test_the_middle_is_in_the_middle() -> None:
    for depth in range(2, 14):
        for count in range(1, depth):
            kept = middle_skipped(depth, count).layers()
            gone = [layer for layer in range(depth) if layer not in kept]
            assert gone == list(range(gone[0], gone[0] + count))
            assert 0 <= (depth - 1 - gone[-1]) - gone[0] <= 1


def test_a_random_plan_has_the_size_and_is_another() -> None:
    plan = Plan.parse("0-1 4-5")
    drawn = {str(random_plan(plan, 6, seed)) for seed in range(20)}
    assert str(plan) not in drawn
    assert len(drawn) > 5
    assert all(len(Plan.parse(text).steps()) == 4 for text in drawn)
