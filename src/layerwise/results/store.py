"""The rows of a run in SQLite.

Losses are only added. Scores of a measure are replaced together. The order of rows depends only on their content, so
that a resumed run equals one that was not interrupted. Because of the write-ahead log, transactions survive `kill -9`,
and other processes can read a consistent state while the run is written.
"""

from __future__ import annotations

import errno
import json
import math
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import astuple, dataclass, fields
from functools import cache
from pathlib import Path

from layerwise.errors import MeasureError, RunError
from layerwise.results.checked import Row, parse_json_text, to_dataclass, to_row
from layerwise.results.manifest import installed_versions, utc_now
from layerwise.results.rows import BENCHMARK_TASK, KEY, Loss, Note, PlanRecord, Score, describe_row, list_columns

_TYPES = {str: "TEXT", int: "INTEGER", float: "REAL"}


def _declare(kind: type) -> str:
    columns = list_columns(kind).items()
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

_ANOTHER = "Check that it is a layerwise run or choose another directory."

_PATIENCE_SECONDS = 30.0


def connect_for_writing(path: Path) -> sqlite3.Connection:
    _check_library()
    if path.exists() and not path.is_file():
        raise RunError(f"{path} is not a file. Choose another run directory.")
    with explain_errors(path):
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
    """Open the database for reading, even while another process writes to it.

    On a read-only medium, SQLite can only open it as immutable, which is safe only if its write-ahead log is empty.
    """
    _check_library()
    if not path.is_file():
        raise RunError(f"{path} does not exist: the run has no rows. Resume it or choose another directory.")
    log = path.with_name(f"{path.name}-wal")
    with explain_errors(path):
        try:
            return _probed(path, "mode=ro")
        except sqlite3.OperationalError as error:
            if _kind(error) not in {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY}:
                raise
            if log.exists() and log.stat().st_size:
                raise RunError(
                    f"{path} was not closed properly: its last rows in {log.name} cannot be read on a read-only disk. "
                    "Copy the run directory to a writable disk."
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
            f"SQLite must be version {'.'.join(map(str, STRICT_SINCE))} or later, got {sqlite3.sqlite_version}. Use a "
            "newer Python, such as one from python.org or conda."
        )


def _distrust(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA cell_size_check = ON")


def _check_tables(connection: sqlite3.Connection, path: Path) -> None:
    kinds = dict(connection.execute("SELECT name, type FROM sqlite_schema"))
    for name, columns in _expected_columns().items():
        if kinds.get(name) != "table":
            raise RunError(f"{path} is not a run database: it has no table {name}. {_ANOTHER}")
        present = {column for _, column, *_ in connection.execute(f"PRAGMA table_info({name})")}
        missing = [column for column in columns if column not in present]
        if missing:
            raise RunError(
                f"{path} was written by another version of layerwise: its table {name} has no column {missing[0]}. "
                "Use that version or repeat the run in another directory."
            )
    active = sorted(name for name, kind in kinds.items() if kind in ("trigger", "view"))
    if active:
        raise RunError(f"{path} has an unexpected {kinds[active[0]]} {active[0]!r}. {_ANOTHER}")


@cache
def _expected_columns() -> dict[str, tuple[str, ...]]:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(SCHEMA)
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        return {name: tuple(row[1] for row in connection.execute(f"PRAGMA table_info({name})")) for name in names}


@contextmanager
def explain_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise RunError(_explanation(path, error)) from error
    except OSError as error:
        full = error.errno in {errno.ENOSPC, errno.EDQUOT}
        raise RunError(_full(path) if full else f"Cannot use {path}: {error}. Choose another run directory.") from error
    except UnicodeEncodeError as error:
        raise RunError(
            f"{error.object!r} cannot be stored as Unicode text. Rename the document or the task."
        ) from error


def _kind(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF


def _full(path: Path) -> str:
    return (
        f"The disk of {path.parent} is full; all rows up to the last finished batch are safe. "
        "Free some space or move the directory to a larger disk, then run the same command again to resume."
    )


def _explanation(path: Path, error: sqlite3.Error) -> str:
    kind = _kind(error)
    if kind == sqlite3.SQLITE_FULL:
        return _full(path)
    if kind in {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM}:
        return f"Cannot write {path} ({error}). Choose a run directory on a writable disk."
    if kind in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}:
        return (
            f"{path} is damaged ({error}) and has not been changed. "
            "Restore the directory from a copy or start again in another one."
        )
    if kind == sqlite3.SQLITE_BUSY:
        return f"{path} is locked by another program ({error}). Close it there and run the command again."
    return f"{path} cannot be used: {error}. {_ANOTHER}"


_REAL = {name for kind in (Loss, Score) for name, (base, _) in list_columns(kind).items() if base is float}


@dataclass(frozen=True, slots=True)
class Session:
    """A process that wrote to the run. `ended` is None while the process runs, and if it was killed."""

    started: str
    ended: str | None
    pid: int
    command: tuple[str, ...]
    versions: Mapping[str, str]


class Store:
    """The database of a run. A `Run` opens it with `Store.writing` or `Store.reading`.

    Every method raises `RunError` if the disk is full or read-only, or if the file is damaged.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection, session: int | None) -> None:
        self.path = path
        self._connection = connection
        self._session = session

    @classmethod
    def writing(cls, path: Path, *, command: Sequence[str] = (), versions: Mapping[str, str] | None = None) -> Store:
        """Open or create a database for writing, and begin a session. The caller must have locked the folder."""
        connection = connect_for_writing(path)
        used = installed_versions() if versions is None else dict(versions)
        values = (utc_now(), os.getpid(), json.dumps(list(command)), json.dumps(used))
        try:
            with explain_errors(path), connection:
                cursor = connection.execute(
                    "INSERT INTO sessions (started, pid, command, versions) VALUES (?, ?, ?, ?)", values
                )
        except BaseException:
            connection.close()
            raise
        return cls(path, connection, cursor.lastrowid)

    @classmethod
    def reading(cls, path: Path) -> Store:
        """Open a database for reading, even on a read-only medium or while another process writes to it."""
        return cls(path, connect_for_reading(path), None)

    def close(self) -> None:
        """End the session and close the file. It can be called more than once."""
        try:
            if self._session is not None:
                with explain_errors(self.path), self._connection:
                    self._connection.execute("UPDATE sessions SET ended = ? WHERE id = ?", (utc_now(), self._session))
        finally:
            self._session = None
            self._connection.close()

    def add_losses(self, rows: Iterable[Loss]) -> None:
        """Add losses in one transaction.

        Raises:
            MeasureError: If a loss is not finite or a count is impossible.
            RunError: If there is already a loss for the same plan, task, document and window.
        """
        rows = [_checked_loss(row) for row in rows]
        session = self._writable()
        with explain_errors(self.path), self._connection as connection:
            for row in rows:
                self._add_loss(connection, row, session)

    def _add_loss(self, connection: sqlite3.Connection, row: Loss, session: int) -> None:
        try:
            connection.execute(_insert("losses", Loss, "session"), (*astuple(row), session))
        except sqlite3.IntegrityError as error:
            raise RunError(
                f"The loss of plan {row.plan!r} on window {row.window} of document {row.document!r} (task "
                f"{row.task!r}) is stored already. Do not add plans that `finished` returns."
            ) from error

    def finished(self, task: str, document: str, window: int) -> frozenset[str]:
        """Return the plans that have a stored loss for a window of a document."""
        query = 'SELECT plan FROM losses WHERE task = ? AND document = ? AND "window" = ?'
        with explain_errors(self.path):
            rows = self._connection.execute(query, (task, document, int(window)))
            return frozenset(text for (text,) in rows)

    def count_losses(self) -> int:
        with explain_errors(self.path):
            (count,) = self._connection.execute("SELECT count(*) FROM losses").fetchone()
            return int(count)

    def losses(self, task: str | None = None) -> Iterator[Loss]:
        """Iterate over the losses of a task (default: of all tasks), ordered by task, document, window and plan."""
        condition, values = ("", ()) if task is None else ("WHERE task = ?", (task,))
        query = f'SELECT {_columns(Loss)} FROM losses {condition} ORDER BY task, document, "window", plan'
        with explain_errors(self.path):
            for row in self._connection.execute(query, values):
                yield self._row(Loss, row)

    def text_losses(self) -> Iterator[Loss]:
        """Iterate over all losses except those of benchmarks."""
        return (row for row in self.losses() if not row.task.startswith(BENCHMARK_TASK))

    def replace_scores(self, measures: str | Iterable[str], rows: Iterable[Score]) -> None:
        """Replace all scores of `measures` by `rows`, in one transaction.

        Rows whose value is NaN are omitted. A bound or p-value that is NaN becomes None.

        Raises:
            MeasureError: If a number is infinite, if a row has another measure, or if two rows have the same key.
        """
        names = (measures,) if isinstance(measures, str) else tuple(measures)
        seen: set[tuple[object, ...]] = set()
        rows = [_checked_score(row, names, seen) for row in rows if not math.isnan(row.value)]
        session = self._writable()
        with explain_errors(self.path), self._connection as connection:
            connection.executemany("DELETE FROM scores WHERE measure = ?", [(name,) for name in names])
            rows_of_session = [(*astuple(row), session) for row in rows]
            connection.executemany(_insert("scores", Score, "session"), rows_of_session)

    def scores(self, measure: str | None = None, *, task: str | None = None, metric: str | None = None) -> list[Score]:
        """Return the matching scores, sorted by measure and then in the order in which they were added."""
        filters = {"measure": measure, "task": task, "metric": metric}
        values = {name: value for name, value in filters.items() if value is not None}
        condition = " AND ".join(f"{name} = :{name}" for name in values) or "TRUE"
        with explain_errors(self.path):
            query = f"SELECT {_columns(Score)} FROM scores WHERE {condition} ORDER BY measure, id"
            return [self._row(Score, row) for row in self._connection.execute(query, values)]

    def replace_notes(self, measure: str, texts: Iterable[str]) -> None:
        """Replace the notes of a measure by the distinct `texts`."""
        self._writable()
        with explain_errors(self.path), self._connection as connection:
            connection.execute("DELETE FROM notes WHERE measure = ?", (measure,))
            connection.executemany(
                "INSERT INTO notes (measure, text) VALUES (?, ?)", [(measure, text) for text in dict.fromkeys(texts)]
            )

    def notes(self, measure: str | None = None) -> list[Note]:
        """Return the notes, sorted by measure and then in the order in which they were added."""
        condition = "TRUE" if measure is None else "measure = :measure"
        query = f"SELECT measure, text FROM notes WHERE {condition} ORDER BY measure, id"
        with explain_errors(self.path):
            return [self._row(Note, row) for row in self._connection.execute(query, {"measure": measure})]

    def add_plans(self, records: Iterable[PlanRecord]) -> None:
        """Add the plan records that are not stored yet, in the given order."""
        stored = set(self.plans())
        new = [record for record in dict.fromkeys(records) if record not in stored]
        self._writable()
        with explain_errors(self.path), self._connection as connection:
            connection.executemany(_insert("plans", PlanRecord), map(astuple, new))

    def plans(self) -> list[PlanRecord]:
        """Return the plan records in the order in which they were added."""
        with explain_errors(self.path):
            rows = self._connection.execute(f"SELECT {_columns(PlanRecord)} FROM plans ORDER BY id")
            return [self._row(PlanRecord, row) for row in rows]

    def sessions(self) -> list[Session]:
        """Return the processes that wrote to the run, in the order in which they started."""
        query = "SELECT started, ended, pid, command, versions FROM sessions ORDER BY id"
        with explain_errors(self.path):
            return [self._session_of(row) for row in self._connection.execute(query)]

    def _session_of(self, cells: Sequence[object]) -> Session:
        names = [item.name for item in fields(Session)]
        content = dict(zip(names, cells, strict=True))
        for name in ("command", "versions"):
            content[name] = parse_json_text(str(content[name]), f"{name} of a session in {self.path}")
        return to_dataclass(Session, content, f"a session in {self.path}")

    def _row(self, kind: type[Row], cells: Sequence[object]) -> Row:
        try:
            return to_row(kind, cells)
        except ValueError as error:
            raise RunError(
                f"{self.path} is damaged: {error}. Restore the directory from a copy or start again in another one."
            ) from error

    def _writable(self) -> int:
        if self._session is None:
            raise RunError(f"{self.path} was opened for reading only. Resume the run to add rows to it.")
        return self._session


@cache
def _columns(kind: type) -> str:
    return ", ".join(f'"{name}"' for name in list_columns(kind))


@cache
def _insert(table: str, kind: type, *more: str) -> str:
    marks = ", ".join("?" for _ in (*list_columns(kind), *more))
    return f"INSERT INTO {table} ({', '.join((_columns(kind), *more))}) VALUES ({marks})"


def _checked_loss(row: Loss) -> Loss:
    try:
        return to_row(Loss, _plain(row))
    except ValueError as error:
        advice = (
            "A window has at least one token, and hits are between 0 and the number of tokens."
            if math.isfinite(row.nll)
            else "The model's output is not finite. Omit the plan or use --dtype float32."
        )
        raise MeasureError(f"{_begun(str(error))}. {advice}") from error


def _checked_score(row: Score, measures: tuple[str, ...], seen: set[tuple[object, ...]]) -> Score:
    description = _begun(describe_row(Score, {name: getattr(row, name) for name in KEY}))
    if row.measure not in measures:
        raise MeasureError(
            f"{description} belongs to measure {row.measure!r}, not {' or '.join(map(repr, measures))}. "
            "Pass the measures of all rows."
        )
    key = (row.measure, *row.key)
    if key in seen:
        raise MeasureError(
            f"{description} is not unique. Distinguish the rows by a column, such as the seed or the layer."
        )
    seen.add(key)
    try:
        return to_row(Score, [None if cell != cell else cell for cell in _plain(row)])
    except ValueError as error:
        raise MeasureError(f"{_begun(str(error))}. Omit the row, or use None if the number does not apply.") from error


def _begun(clause: str) -> str:
    return f"{clause[:1].upper()}{clause[1:]}"


def _plain(row: Loss | Score) -> tuple[str | float | int | None, ...]:
    cells = ((item.name, getattr(row, item.name)) for item in fields(row))
    return tuple(
        cell if cell is None or isinstance(cell, str) else float(cell) if name in _REAL else int(cell)
        for name, cell in cells
    )
