"""`--minutes N`: what a measurement took over what it was given, and the resolution it printed beside the measured one.

    python benchmarks/minutes.py MODEL [--text TEXT] [--verbs sweep diagnose search] [--minutes 3 10 30]
                                 [--budget layers=0.9x] [--families leave_one_out] [--rows minutes.jsonl]
                                 [--processor]

Every measurement is run as a user would, in a process and a folder of its own; its output is kept with its row, and a
command that was stopped goes on with the measurements that have no row. The bars: it takes at most 1.15 times its
minutes, and the resolution it printed before it began is within 20 % of the one that it ended with.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from layerwise.results import Rows, Run
from layerwise.results.vocabulary import CHOSEN, DELTA, REPORT, SEARCH

# What waits for other threads keeps the clock that it has imported.
_IN_PROCESSOR_SECONDS = (
    "import queue, selectors, subprocess, threading, time; time.monotonic = time.perf_counter = time.process_time; "
)
_RUN = "import sys; from layerwise.cli.app import main; sys.argv = ['layerwise', *sys.argv[1:]]; main()"
LATE, OFF = 1.15, 0.2
PRINTED = re.compile(r"^resolution: about ([\d.e-]+) nats", re.MULTILINE)
MEASURED = re.compile(r"effects would be seen from ([\d.e-]+) nats")


def measure(command: list[str], processor: bool) -> dict[str, Any]:
    """One row: what the command took and printed."""
    own = ["-c", _IN_PROCESSOR_SECONDS + _RUN] if processor else ["-m", "layerwise"]
    with tempfile.TemporaryDirectory() as folder:
        begun = seconds_so_far(processor)
        done = subprocess.run(
            [sys.executable, *own, *command, "--run", str(Path(folder) / "run")],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "COLUMNS": "400", **({"OMP_NUM_THREADS": "1"} if processor else {})},
        )
        seconds = seconds_so_far(processor) - begun
        found = MEASURED.search(done.stdout + done.stderr)
        measured = float(found[1]) if found else resolution_of_search(Path(folder) / "run")
    printed = PRINTED.search(done.stdout + done.stderr)
    return {
        "status": done.returncode,
        "seconds": round(seconds, 1),
        "printed": printed and float(printed[1]),
        "measured": measured,
        "output": done.stdout + done.stderr,
    }


def seconds_so_far(processor: bool) -> float:
    """By the clock, or what children took of processors."""
    if not processor:
        return time.monotonic()
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def resolution_of_search(folder: Path) -> float | None:
    """The minimum detectable effect of the plan that a search chose, on the text that chose nothing."""
    if not (folder / "run.sqlite").is_file():
        return None
    with Run.open(folder) as run:
        rows = Rows(run.store.scores(SEARCH))
    chosen = rows.one(metric=CHOSEN)
    row = None if chosen is None else rows.one(metric=DELTA, task=REPORT, plan=chosen.plan)
    return None if row is None else row.mde


def main() -> int:
    """Measure what has no row yet, print all rows; 1 where a bar is not met."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--text")
    parser.add_argument("--verbs", nargs="+", default=["sweep", "diagnose", "search"])
    parser.add_argument("--minutes", nargs="+", type=float, default=[3, 10, 30])
    parser.add_argument("--budget", default="layers=0.9x", help="of a search")
    parser.add_argument("--families", help="of a sweep")
    parser.add_argument("--rows", type=Path, default=Path("minutes.jsonl"))
    parser.add_argument("--processor", action="store_true", help="in seconds of one core, on a machine that is busy")
    given = parser.parse_args()
    rows = [json.loads(line) for line in given.rows.read_text().splitlines()] if given.rows.exists() else []
    met = True
    for minutes in given.minutes:
        for verb in given.verbs:
            command = [verb, given.model, "--minutes", f"{minutes:g}"]
            command += ["--text", given.text] if given.text else []
            command += ["--budget", given.budget] if verb == "search" else []
            command += ["--families", given.families] if verb == "sweep" and given.families else []
            row = next((each for each in rows if each["command"] == command), None)
            if row is None:
                row = {"command": command, **measure(command, given.processor)}
                with given.rows.open("a") as file:
                    file.write(json.dumps(row) + "\n")
            late = row["seconds"] / (60 * minutes)
            off = row["printed"] / row["measured"] - 1 if row["printed"] and row["measured"] else None
            met &= row["status"] == 0 and late <= LATE and (off is None or abs(off) <= OFF)
            said = "" if off is None else f"; resolution {row['printed']:g} for {row['measured']:g}: {off:+.0%}"
            took = f"status {row['status']}, {row['seconds']:.0f} s, {late:.2f} of it"
            print(f"{' '.join(command)}: {took}{said}", flush=True)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
