"""Planted zones are found exactly, and drifting states are one zone."""

import math
from collections.abc import Callable
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerwise.measure.activations.plan_states import (
    _log_distances,
    _ZoneDistances,
    best_borders,
    border_contrasts,
    contrast_weights,
    find_zones,
)
from layerwise.measure.stats.statistics import Numbers
from measure.activations.planted_states import cosines, redrawn, untrained, walked, zoned
from tier import by_tier

SHALLOW = 12


def runs_of(states: int) -> int:
    return by_tier(fast=1, nightly=100 if states <= SHALLOW else 15)


def fewest_right(runs: int) -> int:
    return math.floor(0.95 * runs)


PLANTED = [(6, 6), (3, 6, 3), (2, 8, 2), (4, 4, 4), (3, 18, 3), (6, 6, 6, 6), (2, 21, 1)]
WITHOUT: dict[str, tuple[int, Callable[[np.random.Generator, int], Numbers]]] = {
    "walk": (12, walked),
    "deep walk": (32, walked),
    "growing steps": (32, lambda draw, states: walked(draw, states, growth=0.15)),
    "uneven steps": (24, lambda draw, states: walked(draw, states, uneven=0.2)),
    "redrawn": (24, lambda draw, states: redrawn(draw, states, 0.9)),
    "untrained": (12, untrained),
}


@pytest.mark.simulated
@pytest.mark.parametrize("sizes", PLANTED, ids=str)
def test_planted_zones_are_found_exactly_in_95_of_100(sizes: tuple[int, ...]) -> None:
    borders = tuple(int(border) for border in np.cumsum(sizes)[:-1])
    runs = runs_of(sum(sizes))
    right = sum(
        find_zones(cosines(zoned(np.random.default_rng(run), sizes)), seed=run, walks=500).borders == borders
        for run in range(runs)
    )
    assert right >= fewest_right(runs), right


@pytest.mark.simulated
@pytest.mark.parametrize("kind", WITHOUT)
def test_a_stack_without_zones_is_one_in_95_of_100(kind: str) -> None:
    states, world = WITHOUT[kind]
    runs = runs_of(states)
    one = sum(
        find_zones(cosines(world(np.random.default_rng(run), states)), seed=run, walks=500).count == 1
        for run in range(runs)
    )
    assert one >= fewest_right(runs), one


@given(st.integers(0, 2**32 - 1), st.integers(6, 9), st.integers(2, 4))
def test_dynamic_programming_finds_the_best_of_all_partitions(seed: int, states: int, count: int) -> None:
    excess = np.random.default_rng(seed).standard_normal((states, states))
    excess = excess + excess.T

    def inside(borders: tuple[int, ...]) -> float:
        edges = (0, *borders, states)
        parts = [excess[a:b, a:b] for a, b in pairwise(edges)]
        return sum(float(np.triu(part, 1).sum()) for part in parts)

    allowed = [
        borders
        for borders in combinations(range(1, states), count - 1)
        if all(later - earlier >= 2 for earlier, later in pairwise(borders))
    ]
    found = best_borders(excess, count)
    assert found in allowed
    assert inside(found) == pytest.approx(min(map(inside, allowed)))


def test_a_partition_that_does_not_fit_is_none() -> None:
    assert best_borders(np.zeros((4, 4)), 4) is None


def test_distances_lose_their_decay_and_their_trend() -> None:
    places = np.arange(16)
    even = np.exp(-0.05 * np.abs(places[:, None] - places))
    growing = np.sqrt(np.minimum(places[:, None], places) + 1.0) / np.sqrt(np.maximum(places[:, None], places) + 1.0)
    for cosine in (even, growing):
        measured = _ZoneDistances.from_logs(_log_distances(cosine)[None])
        assert np.abs(measured.excess).max() < 0.12
        assert find_zones(cosine).count == 1


@given(st.integers(0, 2**32 - 1))
def test_a_contrast_is_of_pairs_at_equal_distance_of_the_two_zones(seed: int) -> None:
    cosine = np.random.default_rng(seed).uniform(-1, 1, (9, 9))
    cosine = (cosine + cosine.T) / 2
    first, border, stop = 2, 5, 9
    gaps = []
    for distance in range(1, stop - first):
        pairs = [(i, i + distance) for i in range(first, stop - distance)]
        inside = [cosine[i, j] for i, j in pairs if (i < border) == (j < border)]
        across = [cosine[i, j] for i, j in pairs if (i < border) != (j < border)]
        if inside and across:
            gaps.append(np.mean(inside) - np.mean(across))
    assert border_contrasts(cosine, (first, border))[1] == pytest.approx(np.mean(gaps))
    assert all(abs(weights.sum()) < 1e-12 for weights in contrast_weights(9, (first, border)))


def test_too_few_states_are_one_zone() -> None:
    zones = find_zones(cosines(zoned(np.random.default_rng(0), (4, 5))))
    assert (zones.count, zones.ranges, zones.p) == (1, ((0, 8),), None)


def test_a_border_that_is_worth_less_than_the_margin_is_none() -> None:
    places = np.arange(20)
    alike = places[:, None] // 10 == places // 10
    assert find_zones(0.98 - 0.015 * ~alike + 0.02 * np.eye(20)).count == 1
    assert find_zones(0.95 - 0.03 * ~alike + 0.05 * np.eye(20)).borders == (10,)
