"""Select scores by their columns: `where` filters, `axis` lists the values of a column, `one` finds a single row.

    rows = Rows(run.store.scores())
    for variant in rows.where(measure="healing").axis("variant"):
        loss = rows.one(measure="healing", metric="nll", variant=variant, seed=None, task="all")

`seed=None` selects rows in which the column `seed` is empty. Columns that are not given can have any value.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from typing import Any, overload

from layerwise.errors import RunError, near_matches
from layerwise.results.rows import Score

COLUMNS = frozenset(item.name for item in fields(Score))


class _Present:
    def __repr__(self) -> str:
        return "PRESENT"


PRESENT = _Present()
"""Selects rows in which a column is not empty, as in `rows.where(seed=PRESENT)`."""


class Rows(Sequence[Score]):
    """A sequence of scores that `where` filters by the values of their columns."""

    __slots__ = ("_indexes", "_rows")

    def __init__(self, rows: Iterable[Score] = ()) -> None:
        self._rows = tuple(rows)
        self._indexes: dict[tuple[str, ...], dict[tuple[object, ...], list[Score]]] = {}

    @overload
    def __getitem__(self, at: int) -> Score: ...
    @overload
    def __getitem__(self, at: slice) -> Rows: ...
    def __getitem__(self, at: int | slice) -> Score | Rows:
        return Rows(self._rows[at]) if isinstance(at, slice) else self._rows[at]

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Score]:
        return iter(self._rows)

    def __add__(self, more: Iterable[Score]) -> Rows:
        return Rows((*self._rows, *more))

    def where(self, **columns: Any) -> Rows:
        """Return the rows that match all of the given columns.

        A condition is a value, a collection of values, None (the column is empty), or `PRESENT` (it is not).

        Raises:
            TypeError: If there is no such column.

        >>> rows = Rows([Score("m", "nll", 1.0, variant="a"), Score("m", "nll", 2.0, variant="a", seed=0)])
        >>> [row.value for row in rows.where(variant="a", seed=None)], len(rows.where(seed=PRESENT))
        ([1.0], 1)
        >>> len(rows.where(variant=("a", "b")))
        2
        """
        for name in columns:
            if name not in COLUMNS:
                raise TypeError(f"rows have no column {name!r}; {near_matches(name, COLUMNS)}")
        single = {name: value for name, value in columns.items() if not _is_several(value)}
        matching = self._indexed(single) if single else self._rows
        several = [(name, value) for name, value in columns.items() if name not in single]
        if not several:
            return Rows(matching)
        return Rows(row for row in matching if all(_holds(getattr(row, name), value) for name, value in several))

    def axis(self, column: str) -> tuple[Any, ...]:
        """Return the distinct values of a column in the order of the rows, without None. The task "all" comes first.

        >>> Rows([Score("m", "nll", 1.0, task="qa"), Score("m", "nll", 1.0)]).axis("task")
        ('all', 'qa')
        """
        values = dict.fromkeys(value for row in self._rows if (value := getattr(row, column)) is not None)
        return tuple(sorted(values, key="all".__ne__)) if column == "task" else tuple(values)

    def one(self, **columns: Any) -> Score | None:
        """Return the row that matches all of the given columns, or None if there is none.

        Raises:
            RunError: If several rows match.
        """
        matching = self.where(**columns)
        if len(matching) > 1:
            columns_named = ", ".join(f"{name}={value!r}" for name, value in columns.items())
            raise RunError(
                f"{len(matching)} rows have {columns_named}. Name more columns, or restore the run from a copy."
            )
        return matching[0] if matching else None

    def value(self, **columns: Any) -> float | None:
        """Return the value of the row that matches all of the given columns, or None if there is none; see `one`."""
        row = self.one(**columns)
        return None if row is None else row.value

    def by(self, column: str) -> dict[Any, Rows]:
        """Map each value of a column to the rows that have it, in the order of the method `axis`."""
        return {value: self.where(**{column: value}) for value in self.axis(column)}

    def along(self, column: str) -> dict[Any, Score]:
        """Map each value of a column to the only row that has it, in the order of the method `axis`.

        Raises:
            RunError: If several rows have the same value.
        """
        return {value: row for value in self.axis(column) if (row := self.one(**{column: value})) is not None}

    def _indexed(self, single: dict[str, object]) -> Sequence[Score]:
        names = tuple(sorted(single))
        index = self._indexes.get(names)
        if index is None:
            index = defaultdict(list)
            for row in self._rows:
                index[tuple(getattr(row, name) for name in names)].append(row)
            self._indexes[names] = index = dict(index)
        return index.get(tuple(single[name] for name in names), ())


def _is_several(condition: object) -> bool:
    return condition is PRESENT or isinstance(condition, (tuple, list, set, frozenset))


def _holds(value: object, condition: Any) -> bool:
    return value is not None if condition is PRESENT else value in condition
