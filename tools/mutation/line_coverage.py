"""Measure which fast test executes which line, and its time, in one run under coverage.py.

A test is a coverage context. A shared fixture is a separate context, because its lines are run only by
the first test that uses it. Child processes of tests are measured too.
"""

from __future__ import annotations

import json
import os
import sys
from collections import defaultdict
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from coverage import Coverage, CoverageData

from tools.mutation.pytest_process import run_pytest

CONTEXT = "LAYERWISE_MUTATION_CONTEXT"
FIXTURE = "fixture of "
HOURS = 3 * 3600.0


@dataclass(frozen=True)
class Test:
    """A fast test: its processor seconds, its shared fixtures, and whether it passes."""

    seconds: float
    fixtures: tuple[str, ...]
    passes: bool


@dataclass(frozen=True)
class LineCoverage:
    """The fast tests, the seconds of shared fixtures, and the tests and fixtures that execute each line of a file.

    `marker` is the marker expression of fast tests.
    """

    marker: str
    tests: Mapping[str, Test]
    fixtures: Mapping[str, float]
    contexts: Mapping[str, Mapping[int, frozenset[str]]]

    def covering(self, file: str, lines: range) -> frozenset[str]:
        """Return the passing tests that execute one of `lines` of `file`, or use a fixture that does.

        For lines that are executed on import, it is every test that executes
        any line of the file.
        """
        by_line = self.contexts.get(file, {})
        contexts = frozenset().union(*(by_line.get(line, frozenset()) for line in lines))
        if "" in contexts:
            contexts = frozenset().union(*by_line.values())
        return frozenset(
            name
            for name, test in self.tests.items()
            if test.passes and (name in contexts or not contexts.isdisjoint(test.fixtures))
        )

    def seconds(self, names: frozenset[str]) -> float:
        """Sum the processor time of tests, counting each shared fixture once."""
        needed = {fixture for name in names for fixture in self.tests[name].fixtures}
        return sum(self.tests[name].seconds for name in names) + sum(self.fixtures.get(each, 0.0) for each in needed)


def measure(tree: Path, folder: Path, marker: str) -> LineCoverage:
    """Run the fast tests of `tree` once under coverage; results are stored in `folder`."""
    tests = folder / "tests.json"
    if not tests.exists():
        _measure(tree, folder, marker)
    kept = json.loads(tests.read_text("utf-8"))
    if kept["marker"] != marker:
        raise SystemExit(f"{tests} is of the tests {kept['marker']!r}; choose another folder with --results")
    return LineCoverage(
        marker,
        {name: Test(test["seconds"], tuple(test["fixtures"]), test["passes"]) for name, test in kept["tests"].items()},
        kept["fixtures"],
        _contexts(folder / "coverage.sqlite", tree),
    )


def _measure(tree: Path, folder: Path, marker: str) -> None:
    """Run the tests; `tests.json` is written last, so that an interrupted run restarts."""
    settings, unfinished, parts = folder / "coverage.ini", folder / "unfinished.json", folder / "parts"
    settings.write_text(
        f"[run]\ndata_file = {parts / 'coverage'}\nparallel = true\nsource = {tree / 'src' / 'layerwise'}\n"
        f"patch = subprocess\nsigterm = true\ncontext = ${{{CONTEXT}-}}\ndisable_warnings = no-data-collected\n"
    )
    parts.mkdir(exist_ok=True)
    for part in parts.iterdir():
        part.unlink()
    unfinished.unlink(missing_ok=True)
    plugin = Recorder(settings, unfinished, marker)
    arguments = ["-m", marker, "--basetemp", str(folder / "tmp")]
    end = run_pytest(tree, arguments, plugin, folder / "suite.log", HOURS, plugin.start)
    if not unfinished.exists():
        raise SystemExit(f"the fast tests did not run to their end ({end}): see {folder / 'suite.log'}")
    data = CoverageData(str(folder / "coverage.sqlite"))
    data.erase()
    for part in sorted(parts.iterdir()):
        piece = CoverageData(str(part))
        piece.read()
        data.update(piece)
    data.write()
    unfinished.rename(folder / "tests.json")


def _contexts(data_file: Path, tree: Path) -> dict[str, dict[int, frozenset[str]]]:
    """Map each file, relative to `tree`, and line to the contexts that execute it."""
    data = CoverageData(str(data_file))
    data.read()
    files = {}
    for file in data.measured_files():
        lines = data.contexts_by_lineno(file)
        files[str(Path(file).relative_to(tree))] = {line: frozenset(names) for line, names in lines.items()}
    return files


class Recorder:
    """A pytest plugin that sets the coverage context and writes the time and outcome of each test."""

    def __init__(self, settings: Path, result: Path, marker: str) -> None:
        self._settings, self._result, self._marker = settings, result, marker
        self._context: list[str] = [""]
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._since = 0.0
        self._fixtures: dict[str, tuple[str, ...]] = {}
        self._failed: set[str] = set()

    def start(self) -> None:
        """Start measuring in this process, before the project is imported; bytecode is stored for later runs."""
        sys.dont_write_bytecode = False
        del os.environ["PYTHONDONTWRITEBYTECODE"]
        os.environ[CONTEXT] = ""
        self._coverage = Coverage(config_file=str(self._settings))
        self._coverage.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Measure one test without the shared fixtures that it is the first to use."""
        self._fixtures[item.nodeid] = tuple(
            _name(definitions[-1])
            for definitions in item._fixtureinfo.name2fixturedefs.values()  # type: ignore[attr-defined]
            if definitions[-1].scope != "function"
        )
        self._enter(item.nodeid)
        try:
            return (yield)
        finally:
            self._leave()

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[object]) -> Generator[None, object, object]:
        """Measure a shared fixture."""
        if fixturedef.scope == "function":
            return (yield)
        self._enter(_name(fixturedef))
        try:
            return (yield)
        finally:
            self._leave()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record tests that fail without a mutant, which are not used."""
        if report.failed:
            self._failed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        """Write the results."""
        self._coverage.stop()
        self._coverage.save()
        tests = {
            name: {"seconds": self._seconds[name], "fixtures": fixtures, "passes": name not in self._failed}
            for name, fixtures in self._fixtures.items()
        }
        fixtures = {name: seconds for name, seconds in self._seconds.items() if name.startswith(FIXTURE)}
        self._result.write_text(json.dumps({"marker": self._marker, "tests": tests, "fixtures": fixtures}, indent=1))

    def _enter(self, context: str) -> None:
        self._count()
        self._context.append(context)
        self._switch()

    def _leave(self) -> None:
        self._count()
        self._context.pop()
        self._switch()

    def _count(self) -> None:
        """Add the processor time since the last switch, including child processes, to the current context."""
        times = os.times()
        now = times.user + times.system + times.children_user + times.children_system
        self._seconds[self._context[-1]] += now - self._since
        self._since = now

    def _switch(self) -> None:
        os.environ[CONTEXT] = self._context[-1]
        self._coverage.switch_context(self._context[-1])


def _name(definition: pytest.FixtureDef[object]) -> str:
    """Return the context of a shared fixture, the same for all its parameters."""
    return f"{FIXTURE}{definition.baseid}::{definition.argname}"
