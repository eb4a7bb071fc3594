"""How long every layer learns, counted phase by phase."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerwise.plan.schedule.cost import learned_steps
from layerwise.plan.schedule.presets import PRESETS, lisa, published, ramp, uniform


def test_the_published_core_learns_longest() -> None:
    """Of 125 epochs, the core learns in the 30 of gastrulation and the 15 of maturation."""
    learned = learned_steps(published(12), steps=125)
    assert learned == (35, 35, 35, 35, 45, 45, 15, 35, 55, 55, 35, 15)
    assert set(learned_steps(uniform(12), steps=125)) == {125}


@given(name=st.sampled_from(sorted(PRESETS)), depth=st.integers(2, 40), steps=st.integers(30, 300))
def test_no_layer_learns_in_more_steps_than_there_are(name: str, depth: int, steps: int) -> None:
    learned = learned_steps(PRESETS[name](depth), steps)
    assert len(learned) == depth
    assert all(0 < each <= steps + 1e-9 for each in learned)


def test_chance_is_taken_at_its_mean() -> None:
    assert learned_steps(lisa(12), steps=60) == pytest.approx([10.0] * 12)
    assert learned_steps(ramp(2), steps=100) == pytest.approx([87.5, 75.0])
