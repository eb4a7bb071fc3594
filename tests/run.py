"""Run the tests, and rerun failures alone up to twice: `python tests/run.py [OPTIONS OF PYTEST]`.

Tests that pass in a rerun are listed as unsteady. After more than `MOST` failures, nothing is rerun.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

CACHE = Path(".pytest_cache")
MOST = 20
AGAIN = 2
# One process more than CPUs, since tests wait for processes; files stay whole for their fixtures. Every process would
# rewrite every assertion of a fresh clone: only the tests that are run again show what their assertions compared.
PROCESSES = str((os.cpu_count() or 1) + 1)
SIDE_BY_SIDE = ("--numprocesses", PROCESSES, "--dist", "loadfile", "--no-loadscope-reorder", "--assert=plain")


def pytest(*options: str) -> int:
    # Keep compiled modules, and one thread per process: numpy would take every core in each.
    environment = {**os.environ, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return subprocess.run([sys.executable, "-m", "pytest", *options], env=environment, check=False).returncode


def failed() -> list[str]:
    file = CACHE / "v/cache/lastfailed"
    return sorted(json.loads(file.read_text())) if file.exists() else []


def main(options: Sequence[str]) -> int:
    (CACHE / "v/cache/lastfailed").unlink(missing_ok=True)
    status = pytest(*SIDE_BY_SIDE, *options)
    first = left = failed()
    for _ in range(AGAIN):
        if status != 1 or not left or len(first) > MOST:
            break
        print(f"\nRun again, alone ({len(left)} of {len(first)}):", flush=True)
        status = pytest("--numprocesses", "0", *left)
        left = failed() if status else []
    if unsteady := sorted(set(first) - set(left)) if len(first) <= MOST else []:
        print("\nFlaky: failed in parallel with other tests, and passed alone.")
        print(*(f"  {test}" for test in unsteady), sep="\n")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
