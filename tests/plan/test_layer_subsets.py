"""Which layers are kept: each rule against its definition, and every subset equally likely where chance decides."""

from __future__ import annotations

import random
from collections import Counter
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerwise.errors import PlanError
from layerwise.plan.samplers import RULES, layer_subset, shuffled_subset

# Upper 0.1 % points of chi-square with 9 and 23 degrees of freedom.
CHI_SQUARE_9, CHI_SQUARE_23 = 27.88, 49.73


@given(data=st.data(), depth=st.integers(1, 60), rule=st.sampled_from(RULES), seed=st.integers(0, 99))
def test_layers_are_kept_once_and_in_order(data: st.DataObject, depth: int, rule: str, seed: int) -> None:
    count = data.draw(st.integers(1, depth))
    layers = layer_subset(depth, count, rule, random.Random(seed))
    assert len(layers) == count
    assert list(layers) == sorted(set(layers))
    assert set(layers) <= set(range(depth))


@given(data=st.data(), depth=st.integers(1, 60))
def test_even_means_nearly_equal_gaps_also_at_both_ends(data: st.DataObject, depth: int) -> None:
    count = data.draw(st.integers(1, depth))
    layers = layer_subset(depth, count, "even", random.Random(0))
    # The middle of each of `count` equal stretches of the depth lies in the layer that is kept.
    assert all(layer <= (index + 0.5) * depth / count < layer + 1 for index, layer in enumerate(layers))


@pytest.mark.parametrize(
    ("rule", "layers"), [("first", (0, 1, 2, 3, 4)), ("last", (7, 8, 9, 10, 11)), ("even", (1, 3, 6, 8, 10))]
)
def test_five_of_twelve(rule: str, layers: tuple[int, ...]) -> None:
    assert layer_subset(12, 5, rule, random.Random(0)) == layers


@pytest.mark.parametrize("rule", ["first", "last", "even"])
def test_only_random_asks_chance(rule: str) -> None:
    chance = random.Random(0)
    layer_subset(12, 5, rule, chance)
    assert chance.getstate() == random.Random(0).getstate()


def test_every_subset_is_equally_likely() -> None:
    chance = random.Random(1)
    found = Counter(layer_subset(5, 2, "random", chance) for _ in range(2000))
    assert set(found) == set(combinations(range(5), 2))
    assert sum((count - 200) ** 2 / 200 for count in found.values()) < CHI_SQUARE_9


def test_every_order_of_the_kept_is_equally_likely() -> None:
    chance = random.Random(1)
    found = Counter(shuffled_subset((2, 5, 7, 9), chance).order() for _ in range(4800))
    assert len(found) == 24
    assert sum((count - 200) ** 2 / 200 for count in found.values()) < CHI_SQUARE_23
    assert {tuple(sorted(order)) for order in found} == {(2, 5, 7, 9)}


@pytest.mark.parametrize("count", [0, 5, -1, 2.0])
def test_more_than_there_are(count: int) -> None:
    with pytest.raises(PlanError, match="of 4 layers 1 to 4 can be kept"):
        layer_subset(4, count, "first", random.Random(0))


def test_a_rule_that_is_none() -> None:
    with pytest.raises(PlanError, match="did you mean first"):
        layer_subset(4, 2, "frist", random.Random(0))
