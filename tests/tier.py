"""How much a test computes, by tier: `make test` and CI run few examples of what `make test-nightly` runs many of.

A tier is chosen by the variable `LAYERWISE_TEST_TIER`: `fast`, which is the default, or `nightly`. What depends on it
are above all the tests marked `simulated`, which count the verdicts over many simulated runs, and those of Hypothesis.
They belong to both tiers. A bar has exact rows beside its simulations, so a mistake that few runs do not show is rare;
it is left to the many of the night.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings

TIERS = ("fast", "nightly")
TIER = os.environ.get("LAYERWISE_TEST_TIER", "fast")
assert TIER in TIERS, f"LAYERWISE_TEST_TIER is {TIER!r}; it is one of {', '.join(TIERS)}"

EXAMPLES = {"fast": 10, "nightly": 200}
"""The examples that Hypothesis draws for a test that names no number of its own; another one names it by tier too."""


def by_tier(*, fast: int, nightly: int) -> int:
    return nightly if TIER == "nightly" else fast


def first_fast(cases: Iterable[Any], count: int = 1, slow: int | None = None) -> list[Any]:
    """The cases of a parametrised test: the first `count` are fast, and the others slow, or the next `slow` of them.

    What is left then is nightly.
    """
    marked = []
    for number, case in enumerate(cases):
        mark = pytest.mark.slow if slow is None or number < count + slow else pytest.mark.nightly
        marked.append(case if number < count else pytest.param(case, marks=mark))
    return marked


def load_profile() -> None:
    """Make Hypothesis draw as many examples as this tier does; no example has a deadline, since machines differ.

    In CI (`CI` is set) the examples are the same in every run, as in Hypothesis' own profile for CI: a change is
    refused for what it does and not for an old defect that another draw would find. On a desk they are new every time.
    """
    for tier, count in EXAMPLES.items():
        settings.register_profile(tier, max_examples=count, deadline=None, derandomize="CI" in os.environ)
    settings.load_profile(TIER)
