"""How long drafts are: as long as pays, from what was kept so far."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerwise.stack.speculation.draft_length import PROBE, DraftLength
from layerwise.stack.speculation.layer_passes import LayerPasses, expected_bound, expected_tokens


@given(st.integers(1, 8), st.floats(0.05, 1.2))
def test_all_kept_means_long_drafts_where_a_draft_is_cheap(longest: int, share: float) -> None:
    length = DraftLength(longest, share)
    for _ in range(200):
        length.observe(longest, longest)
    assert length.next() == (longest if share < 0.95 else length.next())
    assert 0 <= length.next() <= longest


def test_none_kept_means_no_drafts_but_a_trial_now_and_then() -> None:
    length = DraftLength(4, 0.5)
    lengths = []
    for _ in range(100):
        lengths.append(length.next())
        length.observe(lengths[-1], 0)
    assert lengths[0] == 4
    assert set(lengths[10:]) == {0, 1}
    assert lengths[10:].count(1) <= 90 / PROBE + 1


def test_a_fixed_length_stays() -> None:
    length = DraftLength(3, 0.5, adapts=False)
    for _ in range(20):
        length.observe(3, 0)
    assert length.next() == 3


@given(st.integers(0, 6), st.floats(0.1, 1.0), st.integers(1, 50))
def test_the_bound_of_full_rounds_is_the_expected_one(length: int, share: float, rounds: int) -> None:
    depth = 10
    steps = round(share * depth)
    passes = LayerPasses(depth, steps, rounds * (length + 1), rounds, rounds * length, rounds * length)
    assert passes.bound == pytest.approx(expected_bound(1.0, length, steps / depth))
    assert expected_tokens(0.0, length) == 1.0
