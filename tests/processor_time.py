"""Sort test files by CPU time and report the slowest tests.

`LAYERWISE_TEST_DURATIONS=tests/durations.json` updates the stored seconds.
"""

import json
import os
import resource
from collections import Counter
from collections.abc import Generator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
STORED = TESTS / "durations.json"
VARIABLE = "LAYERWISE_TEST_DURATIONS"

FAST_SECONDS = 4.0
"""Tests that take longer are marked `slow`."""

NAMED = 15
"""Maximum number of tests in the report."""


ELSEWHERE = [0.0]
"""Processor time of child processes, as reported by `apart`."""


def processor_seconds() -> float:
    own, waited = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + waited.ru_utime + waited.ru_stime + ELSEWHERE[0]


def file_of(test: str) -> str:
    """The file of a test's id.

    >>> file_of("tests/plan/test_grammar.py::test_text[0-3]")
    'tests/plan/test_grammar.py'
    """
    return test.partition("::")[0]


class Stopwatch:
    def __init__(self) -> None:
        self.before = processor_seconds()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        now = processor_seconds()
        report.processor_seconds = now - self.before
        report.is_slow = item.get_closest_marker("slow") is not None
        self.before = now
        return report

    def pytest_runtest_logstart(self) -> None:
        self.before = processor_seconds()


class Table:
    def __init__(self) -> None:
        self.tests: Counter[str] = Counter()
        self.slow: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.tests[report.nodeid] += getattr(report, "processor_seconds", 0.0)
        if getattr(report, "is_slow", False):
            self.slow.add(report.nodeid)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self.tests:
            return
        rooms: Counter[str] = Counter()
        for test, seconds in self.tests.items():
            rooms[Path(*Path(file_of(test)).parent.parts[:2]).name] += seconds
        total, load = sum(self.tests.values()), os.getloadavg()[0]
        terminalreporter.section(f"{total:.0f} s of processor time, load {load:.1f}")
        terminalreporter.write_line("  ".join(f"{room} {seconds:.0f}" for room, seconds in rooms.most_common()))
        for test, seconds in self.tests.most_common(NAMED):
            if seconds < 1.0:
                break
            long = "" if test in self.slow or seconds <= FAST_SECONDS else "  (long for a test that is not marked slow)"
            terminalreporter.write_line(f"{seconds:6.1f} s  {test}{long}")

    def pytest_sessionfinish(self) -> None:
        if (asked := os.environ.get(VARIABLE)) and self.tests:
            files: Counter[str] = Counter()
            for test, seconds in self.tests.items():
                files[file_of(test)] += seconds
            kept = {file: seconds for file, seconds in stored(Path(asked)).items() if Path(file).exists()}
            kept |= {file: round(seconds, 1) for file, seconds in files.items()}
            longest = sorted(((-seconds, file) for file, seconds in kept.items() if seconds >= 0.5))
            Path(asked).write_text(json.dumps({file: -seconds for seconds, file in longest}, indent=1) + "\n")


def stored(file: Path = STORED) -> dict[str, float]:
    return json.loads(file.read_text()) if file.exists() else {}


def sort_longest_first(items: list[pytest.Item]) -> None:
    seconds = stored()
    items.sort(key=lambda item: -seconds.get(file_of(item.nodeid), 0.0))
