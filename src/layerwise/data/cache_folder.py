"""Cache folder: `LAYERWISE_CACHE`, else `XDG_CACHE_HOME/layerwise`, else `~/.cache/layerwise`.

A stamp (size, inode, times of change) tells without reading a file that it is unchanged. Files that changed within one
tick of the file system's clock have no stamp yet.
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
"""The path of a file, its size, its inode, and the two times."""

SETTLED = 2_000_000_000
"""Nanoseconds after which a change gets another time, on every file system."""


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
            f"tokenized text cannot be kept in {folder} ({error.strerror or error}): set {VARIABLE} to a folder on a "
            "disk that can be written and has room"
        ) from error


@contextmanager
def locked(path: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold the lock of `path`, which the end of the process releases; `waiting` is called if another process holds it.

    Raises `DataError` if the file cannot be locked.
    """
    with writable(path.parent.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            waiting()
            lock.acquire()
        except NotImplementedError as error:
            raise OSError(None, "its file system cannot lock files") from error
    try:
        yield
    finally:
        lock.release()


def stamp(path: Path) -> Stamp:
    state = path.stat()
    return (str(path.absolute()), state.st_size, state.st_ino, state.st_mtime_ns, state.st_ctime_ns)


def settled(known: Iterable[Stamp]) -> bool:
    now = time.time_ns()
    return all(max(changed, entered) < now - SETTLED for *_, changed, entered in known)


def code_digest(*paths: Path) -> str:
    """SHA-256 of the Python files at `paths`, or below them: another program may compute something else."""
    state = sha256()
    for root in paths:
        for path in sorted(root.rglob("*.py")) if root.is_dir() else [root]:
            state.update(path.name.encode() + b"\0" + path.read_bytes())
    return state.hexdigest()
