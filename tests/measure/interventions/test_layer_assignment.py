"""Merged models drawn at random: every layer has a position, no model lends more than its share, the seed decides."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerwise.errors import PlanError
from layerwise.experiments.merging.comparison import assignments


@given(st.integers(2, 9), st.integers(2, 12), st.integers(0, 99), st.booleans())
def test_every_layer_once_and_the_models_in_equal_shares(models: int, depth: int, seed: int, own_depth: bool) -> None:
    names = [f"m{number}" for number in range(models)]
    for plan in assignments(names, depth, 5, seed, own_depth=own_depth):
        steps = plan.steps()
        assert sorted(plan.order()) == list(range(depth))
        assert not own_depth or plan.order() == tuple(range(depth))
        lent = Counter(step.source for step in steps)
        assert set(lent) <= set(names)
        assert max(lent.values()) <= -(-depth // models)
        assert min(lent.get(name, 0) for name in names) >= depth // models
        plan.check(depth, names)


def test_with_a_model_for_each_layer_no_two_layers_are_from_the_same_one() -> None:
    names = [f"m{number}" for number in range(12)]
    for own_depth in (True, False):
        for plan in assignments(names, 12, 50, 0, own_depth=own_depth):
            assert len(plan.sources()) == 12


def test_the_seed_alone_decides_and_a_draw_does_not_depend_on_how_many() -> None:
    few, many = (assignments("abc", 6, draws, 7, own_depth=False) for draws in (3, 30))
    assert many[:3] == few == assignments("abc", 6, 3, 7, own_depth=False)
    assert assignments("abc", 6, 3, 8, own_depth=False) != few
    assert len(set(many)) > 25


def test_every_position_is_as_likely_for_every_layer_and_every_model() -> None:
    drawn = assignments("abc", 3, 6_000, 0, own_depth=False)
    cells = Counter(
        ((step.source, step.layer), position) for plan in drawn for position, step in enumerate(plan.steps())
    )
    assert len(cells) == 27
    # 6000 / 9 = 667 expected in each cell, with a standard deviation of 24.
    assert all(abs(count - 6_000 / 9) < 5 * 25 for count in cells.values())


@pytest.mark.parametrize(
    ("models", "depth", "draws", "reason"),
    [
        (["a"], 4, 1, "two models or more"),
        ([], 4, 1, "two models or more"),
        (["a", "a"], 4, 1, "each named once"),
        (["a", "b"], 1, 1, "from 2 to"),
        (["a", "b"], 4, 0, "from 1 up"),
        (["a", "2b"], 4, 1, "named by a letter"),
    ],
)
def test_what_cannot_be_merged_is_refused(models: list[str], depth: int, draws: int, reason: str) -> None:
    with pytest.raises(PlanError, match=reason):
        assignments(models, depth, draws, 0, own_depth=True)
