"""Decide whether the tests that execute a mutant's line kill it, fastest first."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tools.mutation.line_coverage import LineCoverage
from tools.mutation.locate import Location
from tools.mutation.planting import fitting, planted_texts
from tools.mutation.pytest_process import Exit, run_pytest
from tools.mutation.tree_copy import TreeCopy

# Seconds of processor time of the tests in the first rounds; the last round has all that are left.
ROUNDS = (6.0, 40.0)
START = 30.0  # seconds that a round may take to import and collect
SURVIVED = "survived"
SO_FAR = "alive so far"
SLOWER = 3.0  # times as long as without the mutant, after which a round is taken for endless


@dataclass(frozen=True)
class Outcome:
    """The outcome of a mutant: `killed`, `timeout`, `survived`, or `uncovered` if no test executes its line.

    After only the first rounds, it is `alive so far`. `killer` is the first test that failed, and `message` its error.
    Of `covering` tests that execute the line, `ran` were run.
    """

    outcome: str
    killer: str
    message: str
    ran: int
    covering: int


def judge(copy: TreeCopy, location: Location, coverage: LineCoverage, folder: Path) -> Outcome:
    """Apply the mutant to `copy` and run its covering tests, except those of the last round, until one fails."""
    covering = coverage.covering(location.file, location.lines)
    if not covering:
        return Outcome("uncovered", "", "", 0, 0)
    ran = 0
    for tests in rounds(covering, coverage, location.file)[: len(ROUNDS)]:
        ran += len(tests)
        outcome = run_mutants(copy, [location], tests, coverage, folder)
        if outcome.outcome != SURVIVED:
            return replace(outcome, ran=ran, covering=len(covering))
    return Outcome(SURVIVED if ran == len(covering) else SO_FAR, "", "", ran, len(covering))


def judge_together(
    copy: TreeCopy, locations: Mapping[int, Location], coverage: LineCoverage, folder: Path
) -> Iterator[tuple[int, Outcome]]:
    """Run the last rounds of the mutants that are alive so far, and yield their outcomes by number.

    All mutants that do not conflict are applied together. If all tests pass, each of them has survived. If a test
    fails, it is run on each covered mutant separately. The mutants that it kills are removed, and the rest continues.
    If it kills none, the last round of each mutant is run separately.
    """
    covering = {name: coverage.covering(location.file, location.lines) for name, location in locations.items()}
    last = {name: last_round(covering[name], coverage, location.file) for name, location in locations.items()}
    left = dict(locations)
    while left:
        group = fitting(copy, left)
        tests = frozenset().union(*(last[name] for name in group))
        together = run_mutants(copy, [left[name] for name in group], tests, coverage, folder)
        if together.outcome == SURVIVED:
            alone = dict.fromkeys(group, together)
        else:
            suspects = [name for name in group if together.killer in last[name]]
            only = frozenset({together.killer})
            alone = {name: run_mutants(copy, [left[name]], only, coverage, folder) for name in suspects}
            alone = {name: outcome for name, outcome in alone.items() if outcome.outcome != SURVIVED}
            if not alone:
                alone = {name: run_mutants(copy, [left[name]], last[name], coverage, folder) for name in group}
        for name, outcome in alone.items():
            del left[name]
            yield name, replace(outcome, ran=len(covering[name]), covering=len(covering[name]))


def last_round(covering: Collection[str], coverage: LineCoverage, file: str) -> frozenset[str]:
    """Return the covering tests that are not in the first rounds."""
    return frozenset().union(*rounds(covering, coverage, file)[len(ROUNDS) :])


def rounds(covering: Collection[str], coverage: LineCoverage, file: str) -> list[frozenset[str]]:
    """Group the covering tests in rounds: first those of the module in `file`, then the cheapest."""
    own = f"test_{Path(file).stem}"
    left = sorted(
        covering,
        key=lambda name: (Path(name.split("::")[0]).stem != own, coverage.seconds(frozenset({name})), name),
    )
    result = []
    for budget in (*ROUNDS, float("inf")):
        spent, number = 0.0, 0
        while number < len(left) and (number == 0 or spent <= budget):
            spent += coverage.seconds(frozenset({left[number]}))
            number += 1
        if number:
            result.append(frozenset(left[:number]))
        left = left[number:]
    return result


def run_mutants(
    copy: TreeCopy, locations: Sequence[Location], tests: frozenset[str], coverage: LineCoverage, folder: Path
) -> Outcome:
    """Apply mutants that do not conflict, and run tests until one fails."""
    texts = planted_texts(copy, locations)
    assert texts is not None
    with copy.planted(texts):
        end, killer, message = run_tests(copy.mutated, tests, coverage, folder)
    if end.timed_out:
        return Outcome("timeout", "", "", len(tests), len(tests))
    if end.code in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        return Outcome(SURVIVED, "", "", len(tests), len(tests))
    return Outcome("killed", killer or f"exit code {end.code}", message, len(tests), len(tests))


def run_tests(tree: Path, tests: frozenset[str], coverage: LineCoverage, folder: Path) -> tuple[Exit, str, str]:
    """Run tests until one fails. Returns pytest's exit code, the failed test and its error."""
    result = folder / "failure.json"
    result.unlink(missing_ok=True)
    files: dict[str, float] = {}
    for name in tests:
        file = name.split("::")[0]
        files[file] = files.get(file, 0.0) + coverage.tests[name].seconds
    cheapest_first = sorted(files, key=lambda file: files[file])
    arguments = ["-x", "-m", coverage.marker, "--basetemp", str(folder / "tmp"), *cheapest_first]
    selection = Selection(tests, frozenset(coverage.tests), result)
    seconds = START + SLOWER * coverage.seconds(tests)
    end = run_pytest(tree, arguments, selection, folder / "round.log", seconds)
    if not result.exists():
        return end, "", ""
    failure = json.loads(result.read_text("utf-8"))
    return end, failure["test"], failure["message"]


class Selection:
    """A pytest plugin that runs the tests in `wanted` or that only the mutant defines."""

    def __init__(self, wanted: frozenset[str], known: frozenset[str], result: Path) -> None:
        self._wanted, self._known, self._result = wanted, known, result

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Deselect the other tests of the same files."""
        out = [item for item in items if item.nodeid in self._known and item.nodeid not in self._wanted]
        items[:] = [item for item in items if item.nodeid in self._wanted or item.nodeid not in self._known]
        config.hook.pytest_deselected(items=out)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record the failure of a test or of its fixture."""
        self._note(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Record the failure to import a test file."""
        self._note(report)

    def _note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.failed and not self._result.exists():
            lines = str(report.longrepr).strip().splitlines()
            said = next((line for line in lines if line.startswith("E ")), lines[-1] if lines else "")
            self._result.write_text(json.dumps({"test": report.nodeid, "message": said[:300]}), "utf-8")
