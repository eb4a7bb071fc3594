"""The tables of a run, how a connection to them is opened, and what their errors mean in words.

Rows are kept in SQLite with a write-ahead log: a transaction is there whole or not at all after `kill -9`,
and readers see a consistent state while the writer goes on. (After a power cut the last transactions may be
missing; the file stays sound.) Plan texts and document names are stored once and referred to by number,
because a sweep repeats each of them thousands of times. The key of `losses` starts with the window, since the
question asked most often is "which plans are finished on this one?".
"""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from layerwise.errors import RunError

SCHEMA = """
CREATE TABLE IF NOT EXISTS sessions (
    id INTEGER PRIMARY KEY, started TEXT NOT NULL, ended TEXT, pid INTEGER NOT NULL,
    command TEXT NOT NULL, versions TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS plan_texts (
    id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE
);
CREATE TABLE IF NOT EXISTS documents (
    id INTEGER PRIMARY KEY, task TEXT NOT NULL, name TEXT NOT NULL, UNIQUE (task, name)
);
CREATE TABLE IF NOT EXISTS losses (
    document INTEGER NOT NULL REFERENCES documents, window INTEGER NOT NULL,
    plan INTEGER NOT NULL REFERENCES plan_texts,
    nll REAL NOT NULL, tokens INTEGER NOT NULL, hits INTEGER NOT NULL,
    session INTEGER NOT NULL REFERENCES sessions,
    PRIMARY KEY (document, window, plan)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS scores (
    id INTEGER PRIMARY KEY,
    measure TEXT NOT NULL, subject TEXT NOT NULL, task TEXT NOT NULL, metric TEXT NOT NULL,
    value REAL NOT NULL, low REAL, high REAL, p REAL, p_adjusted REAL, resolution REAL,
    documents INTEGER, tokens INTEGER, session INTEGER NOT NULL REFERENCES sessions,
    UNIQUE (measure, subject, task, metric)
);
CREATE TABLE IF NOT EXISTS plans (
    id INTEGER PRIMARY KEY, plan INTEGER NOT NULL REFERENCES plan_texts,
    family TEXT NOT NULL, strategy TEXT NOT NULL, affected INTEGER NOT NULL, draw INTEGER,
    evaluations INTEGER NOT NULL, stages INTEGER NOT NULL, weights INTEGER NOT NULL, slots INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS notes (
    id INTEGER PRIMARY KEY, measure TEXT NOT NULL, text TEXT NOT NULL, UNIQUE (measure, text)
);
"""

_PATIENCE_SECONDS = 30.0
"""How long a statement waits for another connection, such as a backup tool, before it fails."""


def connect_for_writing(path: Path) -> sqlite3.Connection:
    """Open the database at `path`, creating what is missing. The caller holds the folder's lock."""
    with explained(path):
        connection = sqlite3.connect(path, timeout=_PATIENCE_SECONDS)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("PRAGMA foreign_keys = ON")
            connection.executescript(f"BEGIN; {SCHEMA} COMMIT;")
        except BaseException:
            connection.close()
            raise
        return connection


def connect_for_reading(path: Path) -> sqlite3.Connection:
    """Open the database at `path` without changing it, while a writer may be at work.

    A read-only medium cannot hold the shared memory that readers of a live log need. The file is then opened
    as immutable, which is sound only when nothing waits in the log; otherwise the reader is asked to copy the
    folder.
    """
    if not path.is_file():
        raise RunError(f"There is no database at {path}: this run holds no rows. Resume it, or name another folder.")
    log = path.with_name(f"{path.name}-wal")
    with explained(path):
        try:
            return _probed(f"{path.absolute().as_uri()}?mode=ro")
        except sqlite3.OperationalError as error:
            if _kind(error) not in {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY}:
                raise
            if log.exists() and log.stat().st_size:
                raise RunError(
                    f"{path} was not closed, and its last rows in {log.name} cannot be read from a "
                    "read-only place. "
                    "Copy the run folder to a disk that can be written and read it there."
                ) from error
            return _probed(f"{path.absolute().as_uri()}?immutable=1")


def _probed(address: str) -> sqlite3.Connection:
    """Connect and read once: SQLite opens files at the first statement, and errors must come up here."""
    connection = sqlite3.connect(address, uri=True, timeout=_PATIENCE_SECONDS)
    try:
        connection.execute("SELECT count(*) FROM sessions").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn what SQLite and the operating system report into a `RunError` that says how to go on."""
    try:
        yield
    except sqlite3.Error as error:
        raise RunError(_explanation(path, error)) from error
    except OSError as error:
        full = error.errno in {errno.ENOSPC, errno.EDQUOT}
        raise RunError(_full(path) if full else f"Cannot use {path}: {error}. Choose another run folder.") from error
    except UnicodeEncodeError as error:
        raise RunError(
            f"{error.object!r} cannot be stored as Unicode text. Rename the document or the task."
        ) from error


def _kind(error: sqlite3.Error) -> int:
    """SQLite's primary result code: the low byte of the extended one, which some Python errors lack."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF


def _full(path: Path) -> str:
    return (
        f"The disk that holds {path.parent} is full. All rows up to the last finished batch are safe. "
        "Free some space, or move the folder to a larger disk, then run the same command again: it resumes "
        "there."
    )


def _explanation(path: Path, error: sqlite3.Error) -> str:
    kind = _kind(error)
    if kind == sqlite3.SQLITE_FULL:
        return _full(path)
    if kind in {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM}:
        return f"Cannot write {path} ({error}). Choose a run folder on a disk that can be written."
    if kind in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}:
        return (
            f"{path} is damaged ({error}). Restore the folder from a copy, or start again in another folder; "
            "the damaged file has been left as it is."
        )
    if kind == sqlite3.SQLITE_BUSY:
        return f"{path} is locked by another program ({error}). Close it there and run the command again."
    return f"{path} cannot be used: {error}. Check that it is a layerwise run, or choose another folder."
