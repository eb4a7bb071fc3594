"""Measure how many of the stored mutants the fast tests kill: `python -m tools.mutation`.

The source tree is copied, and the fast tests are run once under coverage. Then each mutant is applied to the copy, and
the tests that execute its line are run until one fails. Results are stored, so that the same command resumes.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Collection, Mapping
from pathlib import Path

from tools.mutation import results
from tools.mutation.killing import SO_FAR, Outcome, judge, judge_together, run_tests
from tools.mutation.line_coverage import LineCoverage, measure
from tools.mutation.locate import Location, Missing, locate
from tools.mutation.mutants import Mutant, read
from tools.mutation.pytest_process import preload
from tools.mutation.tree_copy import TreeCopy

MARKER = "not slow and not nightly"
"""The tests that `make test` runs."""


def main() -> None:
    parser = argparse.ArgumentParser(description="How many of the frozen mutants the fast tests kill.")
    parser.add_argument("--results", type=Path, default=Path("build/mutation"), help="where the copy and results are")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after this time; run again to resume")
    asked = parser.parse_args()
    warnings.simplefilter("ignore", SyntaxWarning)  # a mutant may be odd Python
    mutants = read()
    folder = asked.results.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    copy = TreeCopy(folder)
    copy.make(Path(__file__).parents[2])
    locations = locate(mutants, copy.original)
    missing = {number: location.why for number, location in locations.items() if not isinstance(location, Location)}
    kept = results.Results(folder / "results.sqlite", copy.digest())
    preload()
    _run(mutants, locations, kept, copy, measure(copy.mutated, folder, MARKER), asked.minutes)
    print(results.score(mutants, kept.rows(), missing))
    lost = results.find_lost(mutants, kept.rows())
    if lost:
        raise SystemExit("\n".join(lost))


def _run(
    mutants: Collection[Mutant],
    locations: Mapping[int, Location | Missing],
    kept: results.Results,
    copy: TreeCopy,
    coverage: LineCoverage,
    minutes: float,
) -> None:
    """Judge the remaining mutants, then run the tests that killed any of them without a mutant."""
    failing = [name for name, test in coverage.tests.items() if not test.passes]
    print(f"{len(coverage.tests)} fast tests, {len(failing)} fail without a mutant: {failing}", flush=True)
    end = time.monotonic() + 60 * minutes
    located = {mutant: location for mutant in mutants if isinstance(location := locations[mutant.id], Location)}
    cost = {
        mutant: coverage.seconds(coverage.covering(location.file, location.lines))
        for mutant, location in located.items()
    }
    in_order = sorted(located, key=lambda mutant: cost[mutant])
    # All mutants meet the quick tests before any meets the slow ones, so that an early stop says most.
    for mutant in in_order:
        if mutant.id in kept.rows():
            continue
        if time.monotonic() > end:
            return
        began = time.monotonic()
        outcome = judge(copy, located[mutant], coverage, copy.folder)
        _keep(kept, mutant, located[mutant], time.monotonic() - began, outcome)
    by_number = {mutant.id: mutant for mutant in in_order}
    so_far = {name: located[by_number[name]] for name, row in kept.rows().items() if row["outcome"] == SO_FAR}
    began = time.monotonic()
    for name, outcome in judge_together(copy, so_far, coverage, copy.folder):
        _keep(kept, by_number[name], so_far[name], time.monotonic() - began, outcome)
    killers = frozenset(str(row["killer"]) for row in kept.rows().values()) & coverage.tests.keys()
    print("without a mutant the tests that killed end with", run_tests(copy.mutated, killers, coverage, copy.folder))


def _keep(kept: results.Results, mutant: Mutant, location: Location, seconds: float, outcome: Outcome) -> None:
    where = f"{location.file}:{location.change.start[0]} {location.definition} {mutant.operator}"
    kept.add(mutant.id, where, round(seconds, 1), outcome)
    ran = f"{outcome.ran} of {outcome.covering}"
    print(f"{mutant.id:4} {outcome.outcome:12} {seconds:6.1f} s, {ran}  {where}", flush=True)


if __name__ == "__main__":
    main()
