"""Stamps: what tells without reading it that a file is the one that was read before.

A stamp holds the size of a file, its inode, and when its content and its entry were last changed, in nanoseconds. Who
changes a file and sets its old time again changes the time of the entry, which no program can set. What cannot be told
is a second change within one tick of the file system's clock, so files that were changed a moment before they were
read have no stamps yet.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from hashlib import file_digest, sha256
from pathlib import Path

Stamp = tuple[str, int, int, int, int]
"""The path of a file, its size, its inode, and the two times."""

SETTLED = 2_000_000_000
"""Nanoseconds after which a change gets another time, on every file system."""


def stamp(path: Path) -> Stamp:
    """The stamp of a file. Raises `OSError` where there is none."""
    state = path.stat()
    return (str(path.absolute()), state.st_size, state.st_ino, state.st_mtime_ns, state.st_ctime_ns)


def stamps(paths: Iterable[Path]) -> tuple[Stamp, ...]:
    """The stamp of every file."""
    return tuple(stamp(path) for path in paths)


def settled(known: Iterable[Stamp]) -> bool:
    """Whether any later change of the files will be seen: none was changed within the last moments."""
    now = time.time_ns()
    return all(max(changed, entered) < now - SETTLED for *_, changed, entered in known)


def content_digest(path: Path) -> str:
    """SHA-256 of what a file holds."""
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def code_digest(*paths: Path) -> str:
    """SHA-256 of the Python files at `paths`, or below them: another program may compute something else."""
    state = sha256()
    for root in paths:
        for path in sorted(root.rglob("*.py")) if root.is_dir() else [root]:
            state.update(path.name.encode() + b"\0" + path.read_bytes())
    return state.hexdigest()
