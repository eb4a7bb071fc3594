"""A run directory.

    manifest.json     model, text, settings and machine
    run.sqlite        every row (see `layerwise.results.store`)
    run.lock          locked by the writer
    report.html, exports/

Only one process can write at a time. When the process ends, the operating system releases the lock.
"""

from __future__ import annotations

import errno
import os
from contextlib import closing, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from filelock import FileLock, Timeout

from layerwise.errors import RunError
from layerwise.results.checked import read_json_file
from layerwise.results.manifest import Manifest, check_same_run, list_changes
from layerwise.results.store import Store, explain_errors

MANIFEST = "manifest.json"
DATABASE = "run.sqlite"
LOCK = "run.lock"
PROVENANCE = "provenance"
"""Measure of notes about changes of versions or hardware. The report shows them in its chapter on provenance."""


class Run:
    """An open run directory. As a context manager, it closes the database and releases the lock.

    If the run was resumed, `changes` lists the versions and hardware that changed since it began.
    """

    def __init__(
        self, folder: Path, manifest: Manifest, store: Store, lock: FileLock | None, changes: tuple[str, ...] = ()
    ) -> None:
        self.folder = folder
        self.manifest = manifest
        self.store = store
        self.changes = changes
        self._lock = lock

    @classmethod
    def create(cls, folder: Path | str, manifest: Manifest, *, overwrite: bool = False) -> Run:
        """Start a run in `folder`. If the folder contains a run, `overwrite` discards its rows.

        Raises:
            RunError: If the folder contains a run and `overwrite` is False, or if it cannot be written or is in use.
        """
        folder = Path(folder)
        lock = _lock(folder)
        try:
            if overwrite:
                _discard_rows(folder)
            elif (folder / MANIFEST).exists() or (folder / DATABASE).exists():
                raise RunError(
                    f"{folder} already contains a run. Resume it, choose another directory, or pass --overwrite to "
                    "discard it."
                )
            return cls._begin(folder, manifest, lock)
        except BaseException:
            lock.release()
            raise

    @classmethod
    def resume_or_create(cls, folder: Path | str, manifest: Manifest) -> Run:
        """Resume the run in `folder`, or start a new run if there is none.

        A resumed run keeps its manifest. Every call adds a session to the database, with the command and versions of
        `manifest`.

        Raises:
            RunError: If the stored run measures something else or has other `numerics`. The message says which.
        """
        folder = Path(folder)
        lock = _lock(folder)
        try:
            if not (folder / MANIFEST).exists():
                if (folder / DATABASE).exists():
                    raise RunError(
                        f"{folder} contains rows without a {MANIFEST}. Restore it, choose another directory, or pass "
                        "--overwrite to discard the rows."
                    )
                return cls._begin(folder, manifest, lock)
            recorded = _read_manifest(folder)
            check_same_run(recorded, manifest)
            store = Store.writing(folder / DATABASE, command=manifest.command, versions=manifest.versions)
            return cls(folder, recorded, store, lock, _noted(list_changes(recorded, manifest), store))
        except BaseException:
            lock.release()
            raise

    @classmethod
    def open(cls, folder: Path | str) -> Run:
        """Open the run in `folder` for reading, even while another process writes to it."""
        folder = Path(folder)
        return cls(folder, _read_manifest(folder), Store.reading(folder / DATABASE), None)

    @classmethod
    def _begin(cls, folder: Path, manifest: Manifest, lock: FileLock) -> Run:
        # The manifest comes first: if killed in between, the run can be resumed.
        with explain_errors(folder / MANIFEST):
            write_whole(folder / MANIFEST, manifest.to_json().encode())
        store = Store.writing(folder / DATABASE, command=manifest.command, versions=manifest.versions)
        return cls(folder, manifest, store, lock)

    @property
    def report(self) -> Path:
        return self.folder / "report.html"

    @property
    def exports(self) -> Path:
        return self.folder / "exports"

    def close(self) -> None:
        """Close the database and release the lock. It can be called more than once."""
        try:
            self.store.close()
        finally:
            if self._lock is not None:
                self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def is_run(location: Path | str) -> bool:
    folder = Path(location).expanduser()
    return (folder / MANIFEST).is_file() and not (folder / "config.json").exists()


def write_whole(path: Path, content: bytes) -> None:
    """Write a file atomically. Raise `OSError` if this fails, or if the path is a folder, a device or a pipe."""
    if not path.name or path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    draft = path.with_name(f".{path.name}.{os.getpid()}.draft")
    try:
        with draft.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)


def _noted(changes: tuple[str, ...], store: Store) -> tuple[str, ...]:
    stored = [note.text for note in store.notes(PROVENANCE)]
    if not set(changes) <= set(stored):
        store.replace_notes(PROVENANCE, (*stored, *changes))
    return changes


def _lock(folder: Path) -> FileLock:
    lock = FileLock(folder / LOCK, timeout=0, thread_local=False)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout as error:
        raise RunError(
            f"The run directory {folder} is in use: {_name_writer(folder)} is writing to it. "
            "Wait for it to finish, stop it (the run can be resumed), or choose another directory."
        ) from error
    except OSError as error:
        raise RunError(
            f"Cannot lock the run directory {folder} ({error.strerror or error}). Choose a directory on a writable "
            "local disk."
        ) from error
    return lock


def _name_writer(folder: Path) -> str:
    with suppress(RunError), closing(Store.reading(folder / DATABASE)) as store:
        return next((f"process {each.pid}" for each in store.sessions()[-1:] if each.ended is None), "another process")
    return "another process"


def _discard_rows(folder: Path) -> None:
    # The manifest stays until it is replaced: if killed in between, the folder is the old run without rows.
    with explain_errors(folder / DATABASE):
        for name in (DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm"):
            (folder / name).unlink(missing_ok=True)


def _read_manifest(folder: Path) -> Manifest:
    path = folder / MANIFEST
    try:
        content = read_json_file(path)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise RunError(f"{folder} is not a run: it has no {MANIFEST}. {_runs_nearby(folder)}") from error
    return Manifest.of(content, str(path))


def _runs_nearby(folder: Path) -> str:
    for parent in (folder, folder.parent):
        nearby = sorted(path.parent.as_posix() for path in parent.glob(f"*/{MANIFEST}"))
        if nearby:
            return f"Runs nearby: {', '.join(nearby[-5:])}."
    return "Pass the run directory of a verb such as `layerwise sweep`."
