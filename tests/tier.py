"""How much a test computes, by tier: `make test` runs few examples of what CI and `make test-nightly` run many of.

A tier is chosen by the variable `LAYERWISE_TEST_TIER`: `fast`, which is the default, `full`, which is that of CI, or
`nightly`. What depends on it are the tests marked `simulated`, which count the verdicts over many simulated runs, and
those of Hypothesis. They belong to all tiers, and a mistake that the few runs of the fast tier do not show is left to
the many of the others.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings

TIERS = ("fast", "full", "nightly")
TIER = os.environ.get("LAYERWISE_TEST_TIER", "fast")
assert TIER in TIERS, f"LAYERWISE_TEST_TIER is {TIER!r}; it is one of {', '.join(TIERS)}"

EXAMPLES = {"fast": 8, "full": 25, "nightly": 200}
"""The examples that Hypothesis draws for a test that names no number of its own; another one names it by tier too."""


def by_tier(*, fast: int, full: int, nightly: int | None = None) -> int:
    """The number of this tier; that of the full one where the nightly one has none of its own."""
    if TIER == "fast":
        return fast
    return full if TIER == "full" or nightly is None else nightly


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
