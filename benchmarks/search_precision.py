"""Measure what comparing edits in bfloat16 saves in a search, and whether the search still decides the same.

    python benchmarks/search_precision.py MODEL [--text TEXT] [--tokens N] [--budget layers=0.9x] [--seeds 20]

Each seed splits the text again. Both searches run in turns, and their processor time on one thread is compared. The
decisions are equal if both choose the same plan, or if the loss of one plan minus that of the other on held-out text
(float32, paired by document) has a 95% interval that contains 0.
"""

from __future__ import annotations

import argparse
import shutil
import time
from dataclasses import replace
from pathlib import Path
from statistics import median

import torch

import layerwise
from layerwise.measure.stats.effects import ConditionLosses, compare_conditions
from layerwise.results import Run
from layerwise.results.rows import Loss
from layerwise.runner.reporter import Silent
from layerwise.runner.result import SearchResult

DTYPES = {"float32": "float32", "bfloat16": "auto"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--text", type=Path)
    parser.add_argument("--tokens", type=int, default=4000)
    parser.add_argument("--max-length", type=int, default=128)
    parser.add_argument("--budget", default="layers=0.9x")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--runs", type=Path, default=Path("runs/search-precision"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    stack, equal = layerwise.load(given.model), 0
    seconds: dict[str, list[float]] = {name: [] for name in DTYPES}
    for seed in range(given.seeds):
        results: dict[str, SearchResult] = {}
        for name in sorted(DTYPES, reverse=bool(seed % 2)):
            folder = given.runs / f"{name}-{seed}"
            shutil.rmtree(folder, ignore_errors=True)
            began = time.process_time()
            results[name] = layerwise.search(
                stack,
                given.text,
                given.budget,
                tokens=given.tokens,
                max_length=given.max_length,
                dtype=DTYPES[name],
                seed=seed,
                run=folder,
                reporter=Silent(),
            )
            seconds[name].append(time.process_time() - began)
        verdict = compare(results["float32"], results["bfloat16"], seed)
        equal += not verdict.startswith("differs")
        times = ", ".join(f"{name} {seconds[name][-1]:.1f} s" for name in DTYPES)
        print(f"seed {seed}: {results['bfloat16'].best}, {verdict}; {times}", flush=True)
    print(f"{median(seconds['bfloat16']) / median(seconds['float32']):.2f} times the time of a search in float32")
    print(f"equal decisions: {equal} of {given.seeds} seeds")


def compare(first: SearchResult, second: SearchResult, seed: int) -> str:
    """Describe how the plan of the second search relates to that of the first on held-out text."""
    if first.best == second.best:
        return "the same plan"
    rows = [replace(row, plan=name) for name, run in (("1", first), ("2", second)) for row in held_out(run)]
    score = compare_conditions(
        "search", rows, "1", [ConditionLosses("2", "delta_nll", {"plan": "2"})], seed=seed, by_task=False
    )[0]
    assert score.low is not None
    assert score.high is not None
    word = "equal within the interval" if score.low <= 0 <= score.high else "differs"
    return f"{word}: {score.value:+.4f} [{score.low:+.4f}, {score.high:+.4f}] above {first.best}"


def held_out(result: SearchResult) -> list[Loss]:
    """Return the held-out losses of the plan that a search chose."""
    with Run.open(result.folder) as run:
        rows = list(run.store.losses())
    return [row for row in rows if row.plan == str(result.best) and row.task.startswith("report/")]


if __name__ == "__main__":
    main()
