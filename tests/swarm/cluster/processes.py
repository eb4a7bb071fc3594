"""Descendants of a process."""

import time
from collections.abc import Collection
from pathlib import Path

PATIENCE = 120.0
"""Maximum seconds until a process ends: Ray's agents check their driver once a minute."""


def descendants(process: int) -> set[int]:
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError):
            continue
    family = {process}
    while more := {child for child, parent in parents.items() if parent in family} - family:
        family |= more
    return family - {process}


def running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def eventually_ended(processes: Collection[int]) -> bool:
    until = time.monotonic() + PATIENCE
    while any(map(running, processes)) and time.monotonic() < until:
        time.sleep(0.05)
    return not any(map(running, processes))
