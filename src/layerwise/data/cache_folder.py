"""The folder of what can be computed again: that of the user, or the one that a variable names.

    LAYERWISE_CACHE            where it is set
    XDG_CACHE_HOME/layerwise   where that is set, as desktops do
    ~/.cache/layerwise         else

What is in it is written whole or not at all, by one process while others wait, and may be removed at any time when
nothing runs.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from layerwise.errors import DataError

VARIABLE = "LAYERWISE_CACHE"


def cache_folder() -> Path:
    """The folder, as the environment of the process says; it need not be there."""
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named).expanduser().absolute()
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache").absolute() / "layerwise"


@contextmanager
def writable(folder: Path) -> Iterator[None]:
    """Say what to do where nothing can be written to the cache: raises `DataError` for an `OSError`."""
    try:
        yield
    except OSError as error:
        raise DataError(
            f"tokenized text cannot be kept in {folder} ({error.strerror or error}): set {VARIABLE} to a folder on a "
            "disk that can be written and has room"
        ) from error


@contextmanager
def locked(path: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold the lock of the file at `path`, which ends with the process, also by `kill -9`; others wait for it.

    `waiting` is called once where another process holds it. Raises `DataError` where no file can be locked.
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


@contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """A draft beside `path`, a file or a folder, that takes its name when it is complete, and is gone if not."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}-{os.getpid()}-{secrets.token_hex(4)}")
    try:
        yield draft
        if draft.is_file():
            with draft.open("rb") as file:
                os.fsync(file.fileno())
        os.replace(draft, path)
    finally:
        shutil.rmtree(draft) if draft.is_dir() else draft.unlink(missing_ok=True)
