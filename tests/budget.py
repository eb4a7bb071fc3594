"""A fast test takes at most four seconds of processor time: the budget of `make test` keeps itself.

`LAYERWISE_TEST_BUDGET` is the number of seconds; without it nothing is judged. What counts is the processor time of the
test and of the processes that it has waited for, not the time on the clock, so that other work on the machine fails no
test. A slower processor has proportionally more: where a test exceeds the budget, a fixed computation is timed, and
the budget is scaled by it.

Fixtures are not judged, since a module's tests share them. Neither is the first test of a process that imports a
library: it pays for all tests after it.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Generator

import pytest

REFERENCE_SECONDS = 0.1
"""The processor time of `_reference` on the processor for which the budget is meant."""

IMPORTED = 50
"""A test that imports more modules than this has imported a library."""


class Budget:
    """A plugin of pytest: fails each test that is not marked slow and takes more than `seconds`."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, None, None]:
        """Time the test itself, without its fixtures."""
        modules, before = len(sys.modules), processor_seconds()
        yield
        spent = processor_seconds() - before
        if item.get_closest_marker("slow") or spent <= self.seconds or len(sys.modules) - modules > IMPORTED:
            return
        allowed = self.seconds * max(1.0, _reference() / REFERENCE_SECONDS)
        if spent > allowed:
            pytest.fail(
                f"took {spent:.1f} s of processor time, and a fast test may take {allowed:.1f} s: make it cheaper, or "
                "mark it slow",
                pytrace=False,
            )


def processor_seconds() -> float:
    """The processor time of this process and of those that it has waited for."""
    own, waited = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + waited.ru_utime + waited.ru_stime


def _reference() -> float:
    """The processor time of a fixed computation."""
    before = time.process_time()
    total = 0
    for number in range(1_500_000):
        total += number & 7
    assert total
    return time.process_time() - before


def budget() -> Budget | None:
    """The plugin, where its variable asks for it."""
    seconds = os.environ.get("LAYERWISE_TEST_BUDGET")
    return Budget(float(seconds)) if seconds else None
