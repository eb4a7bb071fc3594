"""How much a test computes, by tier: `make test` runs few examples of what `make test-slow` runs many of.

A tier is chosen by the variable `LAYERWISE_TEST_TIER`: `fast`, which is the default, or `full`. What depends on it are
the tests marked `simulated`, which count the verdicts over many simulated runs, and those of Hypothesis. They belong to
both tiers, and a mistake that the few runs of the fast tier do not show is left to the many of the full one.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings

TIERS = ("fast", "full")
TIER = os.environ.get("LAYERWISE_TEST_TIER", "fast")
assert TIER in TIERS, f"LAYERWISE_TEST_TIER is {TIER!r}; it is one of {', '.join(TIERS)}"

EXAMPLES = {"fast": 20, "full": 100}
"""The examples that Hypothesis draws for a test that names no number of its own."""


def by_tier(*, fast: int, full: int) -> int:
    """The number of this tier."""
    return full if TIER == "full" else fast


def first_fast(cases: Iterable[Any], count: int = 1) -> list[Any]:
    """The cases of a parametrised test: the first `count` are fast, and the others slow."""
    return [case if number < count else pytest.param(case, marks=pytest.mark.slow) for number, case in enumerate(cases)]


def load_profile() -> None:
    """Make Hypothesis draw as many examples as this tier does; no example has a deadline, since machines differ."""
    for tier, count in EXAMPLES.items():
        settings.register_profile(tier, max_examples=count, deadline=None)
    settings.load_profile(TIER)
