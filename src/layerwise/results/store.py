"""The rows of a run on disk.

Losses are only ever added, one transaction per call; duplicate cells are refused. A measurement replaces its own
scores. Rows are returned in an order that depends on the rows alone, so resumed runs compare equal.
"""

from __future__ import annotations

import json
import math
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from functools import cache
from pathlib import Path

from layerwise.errors import MeasureError, RunError
from layerwise.results.checked import Row, parse, row_of, value_of
from layerwise.results.database import connect_for_reading, connect_for_writing, explained
from layerwise.results.manifest import installed_versions, utc_now
from layerwise.results.rows import BENCHMARK_TASK, KEY, Loss, Note, PlanRecord, Score, columns_of, row_name

_REAL = {name for kind in (Loss, Score) for name, (base, _) in columns_of(kind).items() if base is float}


@dataclass(frozen=True, slots=True)
class Session:
    """One process that wrote to the run. `ended` is `None` while it is at work, or when it was killed."""

    started: str
    ended: str | None
    pid: int
    command: tuple[str, ...]
    versions: Mapping[str, str]


class Store:
    """The tables of one run; made by `Store.writing` or `Store.reading`, usually through a `Run`.

    Every method raises `RunError` if the disk is full or read-only, or the file damaged.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection, session: int | None) -> None:
        self.path = path
        self._connection = connection
        self._session = session

    @classmethod
    def writing(cls, path: Path, *, command: Sequence[str] = (), versions: Mapping[str, str] | None = None) -> Store:
        """Open `path` to add rows, creating it if need be, and begin a session. Hold the folder's lock."""
        connection = connect_for_writing(path)
        used = installed_versions() if versions is None else dict(versions)
        values = (utc_now(), os.getpid(), json.dumps(list(command)), json.dumps(used))
        try:
            with explained(path), connection:
                cursor = connection.execute(
                    "INSERT INTO sessions (started, pid, command, versions) VALUES (?, ?, ?, ?)", values
                )
        except BaseException:
            connection.close()
            raise
        return cls(path, connection, cursor.lastrowid)

    @classmethod
    def reading(cls, path: Path) -> Store:
        """Open `path` to read rows; a writer may be at work, and the folder may be read-only."""
        return cls(path, connect_for_reading(path), None)

    def close(self) -> None:
        """Note the end of the session and let the file go. Closing twice does nothing."""
        try:
            if self._session is not None:
                with explained(self.path), self._connection:
                    self._connection.execute("UPDATE sessions SET ended = ? WHERE id = ?", (utc_now(), self._session))
        finally:
            self._session = None
            self._connection.close()

    def add_losses(self, rows: Iterable[Loss]) -> None:
        """Add rows in one transaction: all of them, or, on any error, none.

        Raises `MeasureError` for a non-finite `nll` or impossible counts, and `RunError` for a cell (plan, task,
        document, window) that exists.
        """
        rows = [_checked_loss(row) for row in rows]
        session = self._writable()
        with explained(self.path), self._connection as connection:
            for row in rows:
                self._add_loss(connection, row, session)

    def _add_loss(self, connection: sqlite3.Connection, row: Loss, session: int) -> None:
        try:
            connection.execute(_insert("losses", Loss, "session"), (*astuple(row), session))
        except sqlite3.IntegrityError as error:
            raise RunError(
                f"Plan {row.plan!r} was computed again on window {row.window} of document {row.document!r} "
                f"(task {row.task!r}), which this run already holds. Ask finished() first and leave it out."
            ) from error

    def finished(self, task: str, document: str, window: int) -> frozenset[str]:
        """The plans whose loss on this window is already there: what a resumed run leaves out."""
        query = 'SELECT plan FROM losses WHERE task = ? AND document = ? AND "window" = ?'
        with explained(self.path):
            rows = self._connection.execute(query, (task, document, int(window)))
            return frozenset(text for (text,) in rows)

    def count_losses(self) -> int:
        """How many losses the run holds."""
        with explained(self.path):
            (count,) = self._connection.execute("SELECT count(*) FROM losses").fetchone()
            return int(count)

    def losses(self, task: str | None = None) -> Iterator[Loss]:
        """Iterate over all losses, or those of one task, ordered by task, document, window and plan."""
        chosen, values = ("", ()) if task is None else ("WHERE task = ?", (task,))
        query = f'SELECT {_columns(Loss)} FROM losses {chosen} ORDER BY task, document, "window", plan'
        with explained(self.path):
            for row in self._connection.execute(query, values):
                yield self._row(Loss, row)

    def text_losses(self) -> Iterator[Loss]:
        """All losses but those of benchmarks, in the order of `losses`: what effects are computed from."""
        return (row for row in self.losses() if not row.task.startswith(BENCHMARK_TASK))

    def replace_scores(self, measures: str | Iterable[str], rows: Iterable[Score]) -> None:
        """Replace everything that `measures`, one name or several, had written by `rows`, in one transaction.

        Rows whose value is NaN are dropped; a NaN bound or p-value becomes `None`. Raises `MeasureError` for an
        infinite number, a row of another measure, and two rows that differ only in their numbers.
        """
        names = (measures,) if isinstance(measures, str) else tuple(measures)
        seen: set[tuple[object, ...]] = set()
        rows = [_checked_score(row, names, seen) for row in rows if not math.isnan(row.value)]
        session = self._writable()
        with explained(self.path), self._connection as connection:
            connection.executemany("DELETE FROM scores WHERE measure = ?", [(name,) for name in names])
            rows_of_session = [(*astuple(row), session) for row in rows]
            connection.executemany(_insert("scores", Score, "session"), rows_of_session)

    def scores(self, measure: str | None = None, *, task: str | None = None, metric: str | None = None) -> list[Score]:
        """The scores that match what is given: measures alphabetically, each in the order it was written."""
        wanted = {"measure": measure, "task": task, "metric": metric}
        given = {name: value for name, value in wanted.items() if value is not None}
        condition = " AND ".join(f"{name} = :{name}" for name in given) or "TRUE"
        with explained(self.path):
            query = f"SELECT {_columns(Score)} FROM scores WHERE {condition} ORDER BY measure, id"
            return [self._row(Score, row) for row in self._connection.execute(query, given)]

    def replace_notes(self, measure: str, texts: Iterable[str]) -> None:
        """Put `texts`, without repetition, in the place of what `measure` had noted before."""
        self._writable()
        with explained(self.path), self._connection as connection:
            connection.execute("DELETE FROM notes WHERE measure = ?", (measure,))
            connection.executemany(
                "INSERT INTO notes (measure, text) VALUES (?, ?)", [(measure, text) for text in dict.fromkeys(texts)]
            )

    def notes(self, measure: str | None = None) -> list[Note]:
        """What was left out and why: measures alphabetically, each in the order it was noted."""
        condition = "TRUE" if measure is None else "measure = :measure"
        query = f"SELECT measure, text FROM notes WHERE {condition} ORDER BY measure, id"
        with explained(self.path):
            return [self._row(Note, row) for row in self._connection.execute(query, {"measure": measure})]

    def add_plans(self, records: Iterable[PlanRecord]) -> None:
        """Add records in the order given; those that are there already stay where they are."""
        known = set(self.plans())
        new = [record for record in dict.fromkeys(records) if record not in known]
        self._writable()
        with explained(self.path), self._connection as connection:
            connection.executemany(_insert("plans", PlanRecord), map(astuple, new))

    def plans(self) -> list[PlanRecord]:
        """Why each plan is in the run, in the order the records were added."""
        with explained(self.path):
            rows = self._connection.execute(f"SELECT {_columns(PlanRecord)} FROM plans ORDER BY id")
            return [self._row(PlanRecord, row) for row in rows]

    def sessions(self) -> list[Session]:
        """Every process that wrote to the run, the first one first."""
        query = "SELECT started, ended, pid, command, versions FROM sessions ORDER BY id"
        with explained(self.path):
            return [self._session_of(row) for row in self._connection.execute(query)]

    def _session_of(self, cells: Sequence[object]) -> Session:
        names = [item.name for item in fields(Session)]
        content = dict(zip(names, cells, strict=True))
        for name in ("command", "versions"):
            content[name] = parse(str(content[name]), f"{name} of a session in {self.path}")
        return value_of(Session, content, f"a session in {self.path}")

    def _row(self, kind: type[Row], cells: Sequence[object]) -> Row:
        try:
            return row_of(kind, cells)
        except ValueError as error:
            raise RunError(
                f"{self.path} is damaged: {error}. Restore the folder from a copy, or start again in another folder."
            ) from error

    def _writable(self) -> int:
        if self._session is None:
            raise RunError(f"{self.path} was opened for reading. Resume the run to add rows to it.")
        return self._session


@cache
def _columns(kind: type) -> str:
    return ", ".join(f'"{name}"' for name in columns_of(kind))


@cache
def _insert(table: str, kind: type, *more: str) -> str:
    marks = ", ".join("?" for _ in (*columns_of(kind), *more))
    return f"INSERT INTO {table} ({', '.join((_columns(kind), *more))}) VALUES ({marks})"


def _checked_loss(row: Loss) -> Loss:
    try:
        return row_of(Loss, _plain(row))
    except ValueError as error:
        advice = (
            "A window scores at least one token, and hits lie between 0 and the tokens."
            if math.isfinite(row.nll)
            else "The model's output is not finite there: leave the plan out, or run it with --dtype float32."
        )
        raise MeasureError(f"{_begun(str(error))}. {advice}") from error


def _checked_score(row: Score, measures: tuple[str, ...], seen: set[tuple[object, ...]]) -> Score:
    named = _begun(row_name(Score, {name: getattr(row, name) for name in KEY}))
    if row.measure not in measures:
        raise MeasureError(
            f"{named} belongs to measure {row.measure!r}, not {' or '.join(map(repr, measures))}. "
            "Name every measure that is replaced."
        )
    key = (row.measure, *row.key)
    if key in seen:
        raise MeasureError(
            f"{named} is there twice. Tell the two apart by a column, such as the arm, the seed or the layer."
        )
    seen.add(key)
    try:
        return row_of(Score, [None if cell != cell else cell for cell in _plain(row)])
    except ValueError as error:
        raise MeasureError(f"{_begun(str(error))}. Leave the row out, or write None if it does not apply.") from error


def _begun(clause: str) -> str:
    return f"{clause[:1].upper()}{clause[1:]}"


def _plain(row: Loss | Score) -> tuple[str | float | int | None, ...]:
    cells = ((item.name, getattr(row, item.name)) for item in fields(row))
    return tuple(
        cell if cell is None or isinstance(cell, str) else float(cell) if name in _REAL else int(cell)
        for name, cell in cells
    )
