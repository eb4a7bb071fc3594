"""The tables of a run in SQLite, connections to them, and their errors in words.

With the write-ahead log, transactions survive `kill -9` and readers see a consistent state during writes. The key of
`losses` ends with the plan, for the most frequent query: which plans are finished on this window?
"""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path

from layerwise.errors import RunError
from layerwise.results.rows import Loss, Note, PlanRecord, Score, columns_of

_TYPES = {str: "TEXT", int: "INTEGER", float: "REAL"}


def _declare(kind: type) -> str:
    columns = columns_of(kind).items()
    return ", ".join(f'"{name}" {_TYPES[base]}{"" if empty else " NOT NULL"}' for name, (base, empty) in columns)


SCHEMA = f"""
CREATE TABLE IF NOT EXISTS sessions (
    id INTEGER PRIMARY KEY, started TEXT NOT NULL, ended TEXT, pid INTEGER NOT NULL,
    command TEXT NOT NULL, versions TEXT NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS losses (
    {_declare(Loss)}, session INTEGER NOT NULL REFERENCES sessions, PRIMARY KEY (task, document, "window", plan)
) WITHOUT ROWID, STRICT;
CREATE TABLE IF NOT EXISTS scores (
    id INTEGER PRIMARY KEY, {_declare(Score)}, session INTEGER NOT NULL REFERENCES sessions
) STRICT;
CREATE TABLE IF NOT EXISTS plans (id INTEGER PRIMARY KEY, {_declare(PlanRecord)}) STRICT;
CREATE TABLE IF NOT EXISTS notes (id INTEGER PRIMARY KEY, {_declare(Note)}, UNIQUE (measure, text)) STRICT;
"""

STRICT_SINCE = (3, 37, 0)

_ANOTHER = "Check that it is a layerwise run, or choose another folder."

_PATIENCE_SECONDS = 30.0


def connect_for_writing(path: Path) -> sqlite3.Connection:
    _check_library()
    if path.exists() and not path.is_file():
        raise RunError(f"{path} is not a file, so it can hold no rows. Choose another run folder.")
    with explained(path):
        connection = sqlite3.connect(path, timeout=_PATIENCE_SECONDS)
        try:
            _distrust(connection)
            if connection.execute("SELECT count(*) FROM sqlite_schema").fetchone() != (0,):
                _check_tables(connection, path)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("PRAGMA foreign_keys = ON")
            connection.executescript(f"BEGIN; {SCHEMA} COMMIT;")
        except BaseException:
            connection.close()
            raise
        return connection


def connect_for_reading(path: Path) -> sqlite3.Connection:
    """Open the database at `path` without changing it, possibly while it is being written.

    On a read-only medium it is opened as immutable, which is sound only with an empty log; otherwise the error advises
    copying the directory.
    """
    _check_library()
    if not path.is_file():
        raise RunError(f"There is no database at {path}: this run holds no rows. Resume it, or name another folder.")
    log = path.with_name(f"{path.name}-wal")
    with explained(path):
        try:
            return _probed(path, "mode=ro")
        except sqlite3.OperationalError as error:
            if _kind(error) not in {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY}:
                raise
            if log.exists() and log.stat().st_size:
                raise RunError(
                    f"{path} was not closed, and its last rows in {log.name} cannot be read from a "
                    "read-only folder. "
                    "Copy the run folder to a disk that can be written and read it there."
                ) from error
            return _probed(path, "immutable=1")


def _probed(path: Path, mode: str) -> sqlite3.Connection:
    address = f"{path.absolute().as_uri()}?{mode}"
    connection = sqlite3.connect(address, uri=True, timeout=_PATIENCE_SECONDS)
    try:
        _distrust(connection)
        _check_tables(connection, path)
        connection.execute("SELECT count(*) FROM sessions").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection


def _check_library() -> None:
    if sqlite3.sqlite_version_info < STRICT_SINCE:
        raise RunError(
            f"This Python has SQLite {sqlite3.sqlite_version}, and runs are kept by {'.'.join(map(str, STRICT_SINCE))} "
            "or later. Use a newer Python, such as one from python.org or conda."
        )


def _distrust(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA cell_size_check = ON")


def _check_tables(connection: sqlite3.Connection, path: Path) -> None:
    kinds = dict(connection.execute("SELECT name, type FROM sqlite_schema"))
    for name, columns in _columns().items():
        if kinds.get(name) != "table":
            raise RunError(f"{path} is not the database of a run: it has no table {name}. {_ANOTHER}")
        present = {column for _, column, *_ in connection.execute(f"PRAGMA table_info({name})")}
        missing = [column for column in columns if column not in present]
        if missing:
            raise RunError(
                f"{path} was written by another version of layerwise: its table {name} has no column {missing[0]}. "
                "Read it with that version, or repeat the run in another folder."
            )
    active = sorted(name for name, kind in kinds.items() if kind in ("trigger", "view"))
    if active:
        raise RunError(f"{path} holds the {kinds[active[0]]} {active[0]!r}, which layerwise does not write. {_ANOTHER}")


@cache
def _columns() -> dict[str, tuple[str, ...]]:
    with closing(sqlite3.connect(":memory:")) as made:
        made.executescript(SCHEMA)
        names = [name for (name,) in made.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        return {name: tuple(row[1] for row in made.execute(f"PRAGMA table_info({name})")) for name in names}


@contextmanager
def explained(path: Path) -> Iterator[None]:
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
    return f"{path} cannot be used: {error}. {_ANOTHER}"
