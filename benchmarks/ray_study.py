"""A study of growth by two workers against one process: how much faster it is, and whether its rows are the same.

    python benchmarks/ray_study.py                                  # two arms, two seeds, the tiny model
    python benchmarks/ray_study.py --steps 60 --seeds 3 --arms published,ramp

Both sides are commands, timed from their start to their end, and again without what it takes to start Ray and to open
the study in the workers. The process and every worker compute with one thread. Rows about time and memory are not
compared.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from layerwise.results import Run
from layerwise.results.rows import Score

TIMED = re.compile("second|time|saving|measured|bytes")
"""What rows about the machine are called."""

FIRST = "starting workers on Ray"
"""How the line begins after which the workers are started."""

OPEN = re.compile(r"pilot .*|.*\d steps in")
"""The first line that a training writes."""


def run(command: list[str]) -> tuple[float, float]:
    """The seconds of a command, and those of them in which workers were started before any training reported."""
    start = time.perf_counter()
    begun = reported = None
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=environment
    ) as one:
        assert one.stderr is not None
        for line in one.stderr:
            print("   ", line.rstrip()[:140], flush=True)
            if line.startswith(FIRST):
                begun = time.perf_counter()
            elif begun is not None and reported is None and ("trainings:" in line or OPEN.match(line)):
                reported = time.perf_counter()
    assert one.returncode == 0
    return time.perf_counter() - start, 0.0 if begun is None or reported is None else reported - begun


def rows(folder: Path) -> list[Score]:
    """The rows of a run that are not about the machine."""
    with Run.open(folder) as run:
        return [
            row
            for row in run.store.scores()
            if row.measure != "run" and not TIMED.search(f"{row.measure} {row.task} {row.metric}")
        ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arms", default="published")
    parser.add_argument("--seeds", default="2")
    parser.add_argument("--steps", default="40")
    parser.add_argument("--workers", default="2")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        command = [
            sys.executable,
            "-m",
            "layerwise",
            "study",
            "growth",
            "--arms",
            options.arms,
            "--seeds",
            options.seeds,
            "--steps",
            options.steps,
            "--max-epochs",
            "1000",
        ]
        spread = ["--ray", "local", "--workers", options.workers]
        one, _ = run([*command, "--run", f"{name}/one"])
        two, opening = run([*command, "--run", f"{name}/two", *spread])
        same = rows(Path(name) / "one") == rows(Path(name) / "two")
    print(f"{one:.1f} s in one process, {two:.1f} s by {options.workers} workers = {one / two:.2f} x")
    print(f"without the first {opening:.1f} s of Ray and the workers: {one / (two - opening):.2f} x")
    print(f"rows that are not about time: {'equal' if same else 'NOT EQUAL'}")


if __name__ == "__main__":
    main()
