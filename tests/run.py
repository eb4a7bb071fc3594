"""Run the tests, and what fails again, alone: `python tests/run.py [OPTIONS OF PYTEST]`, as `make test` does.

A test that failed is run again in one process with nothing beside it, up to twice. What fails each time is refused.
What passes then has told of the machine (a neighbour that took its time or its port) and not of the code: it is named
at the end, so that it can be made steady. Where more than `MOST` tests fail the code is wrong, and nothing is run
again.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

CACHE = Path(".pytest_cache")
"""Where pytest keeps what failed, in the folder in which it is started."""

MOST = 20
"""The most failed tests that are run again."""

AGAIN = 2
"""How often they are."""

# One more than there are processors, since many tests wait for processes that they start. A file of tests stays in one
# process, so that its fixtures are made once; the files that take longest come first.
SIDE_BY_SIDE = ("--numprocesses", str((os.cpu_count() or 1) + 1), "--dist", "loadfile", "--no-loadscope-reorder")


def pytest(*options: str) -> int:
    # Compiled modules are kept, whatever the shell says, since the tests start many processes. Each computes with one
    # thread: numpy's own would be as many as there are cores, in every process, and wait for each other.
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
        print("\nNot steady: failed beside others, and passed alone.")
        print(*(f"  {test}" for test in unsteady), sep="\n")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
