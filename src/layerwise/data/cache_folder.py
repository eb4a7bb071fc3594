"""Cache directory (`LAYERWISE_CACHE`, `XDG_CACHE_HOME/layerwise` or `~/.cache/layerwise`), locks and file stamps.

A stamp (size, inode and times of change) shows whether a file has changed without reading it, unless two changes fall
into the same tick of the file system's clock.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from filelock import FileLock, Timeout

from layerwise.errors import DataError

VARIABLE = "LAYERWISE_CACHE"

Stamp = tuple[str, int, int, int, int]
"""Path, size, inode, and modification and change time of a file."""

TICK = 2_000_000_000
"""Nanoseconds after which every file system gives a change a new time."""


def cache_folder() -> Path:
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named).expanduser().absolute()
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache").absolute() / "layerwise"


@contextmanager
def writable(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(
            f"Cannot write the token cache to {folder} ({error.strerror or error}). Set {VARIABLE} to a writable "
            "directory on a disk with enough space."
        ) from error


@contextmanager
def locked(path: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold the lock of `path`. If another process holds it, calls `waiting` first. Raises `DataError` on failure."""
    with writable(path.parent.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            waiting()
            lock.acquire()
        except NotImplementedError as error:
            raise OSError(None, f"the file system of {path.parent} cannot lock files") from error
    try:
        yield
    finally:
        lock.release()


def read_stamp(path: Path) -> Stamp:
    state = path.stat()
    return (str(path.absolute()), state.st_size, state.st_ino, state.st_mtime_ns, state.st_ctime_ns)


def is_settled(stamps: Iterable[Stamp]) -> bool:
    now = time.time_ns()
    return all(max(modified, changed) < now - TICK for *_, modified, changed in stamps)


def hash_code(*paths: Path) -> str:
    """Compute a SHA-256 of the Python files at or below `paths`."""
    state = sha256()
    for root in paths:
        for path in sorted(root.rglob("*.py")) if root.is_dir() else [root]:
            state.update(path.name.encode() + b"\0" + path.read_bytes())
    return state.hexdigest()
