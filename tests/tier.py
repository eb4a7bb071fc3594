"""Test effort by LAYERWISE_TEST_TIER: `fast` (default) or `nightly`, which draws more simulations and examples."""

import os
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings

TIERS = ("fast", "nightly")
TIER = os.environ.get("LAYERWISE_TEST_TIER", "fast")
assert TIER in TIERS, f"LAYERWISE_TEST_TIER is {TIER!r}; it is one of {', '.join(TIERS)}"

EXAMPLES = {"fast": 10, "nightly": 200}
"""Default number of Hypothesis examples."""


def by_tier(*, fast: int, nightly: int) -> int:
    return nightly if TIER == "nightly" else fast


def first_fast(cases: Iterable[Any], count: int = 1, slow: int | None = None) -> list[Any]:
    """Mark cases after the first `count` as slow, and leave those after the next `slow` to the night."""
    marked = []
    for number, case in enumerate(cases):
        if number < count:
            marked.append(case)
        elif slow is None or number < count + slow:
            marked.append(pytest.param(case, marks=pytest.mark.slow))
        elif TIER == "nightly":
            marked.append(pytest.param(case, marks=pytest.mark.nightly))
    return marked


def load_profile() -> None:
    """Load the tier's Hypothesis profile without deadlines; CI draws the same examples in every run."""
    for tier, count in EXAMPLES.items():
        settings.register_profile(tier, max_examples=count, deadline=None, derandomize="CI" in os.environ)
    settings.load_profile(TIER)
