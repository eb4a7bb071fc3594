"""Orders at an exact distance: the distance is exact, every order can be drawn, and all are drawn equally often."""

from __future__ import annotations

from collections import Counter
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerwise.errors import PlanError
from layerwise.plan.kendall import draw_order, inversions, most_inversions


@given(st.integers(1, 40), st.floats(0, 1), st.integers())
def test_the_distance_is_exact(size: int, share: float, seed: int) -> None:
    distance = round(share * most_inversions(size))
    order = draw_order(size, distance, seed)
    assert sorted(order) == list(range(size))
    assert inversions(order) == distance
    assert order == draw_order(size, distance, seed)


@pytest.mark.parametrize("distance", range(11))
def test_every_order_at_the_distance_is_drawn_equally_often(distance: int) -> None:
    possible = [order for order in permutations(range(5)) if inversions(order) == distance]
    draws = 300 * len(possible)
    counts = Counter(draw_order(5, distance, seed) for seed in range(draws))
    assert set(counts) == set(possible)
    # Fixed seeds: a fixed number, that a uniform draw exceeds with probability below 1e-3.
    chi_square = sum((counts[order] - 300) ** 2 / 300 for order in possible)
    freedom = len(possible) - 1
    assert chi_square < freedom + 4 * (2 * freedom) ** 0.5 + 1e-9


def test_the_ends_have_one_order_each() -> None:
    assert draw_order(9, 0, seed=4) == tuple(range(9))
    assert draw_order(9, 36, seed=4) == tuple(range(8, -1, -1))


@pytest.mark.parametrize("distance", [-1, 11, 2.0])
def test_a_distance_that_no_order_has_is_refused(distance: int) -> None:
    with pytest.raises(PlanError, match="distances 0 to 10"):
        draw_order(5, distance, seed=0)
