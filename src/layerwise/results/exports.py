"""A run's tables as files that other tools read: Parquet, or CSV.

Parquet files carry the manifest in their schema metadata under `layerwise.manifest`, so a table that travels
alone still says which weights and texts it came from. CSV has no place for that; the manifest is written
beside the tables. A spreadsheet takes a text that begins with `=`, `+`, `-` or `@` for a formula, so in CSV such a text
has an apostrophe before it, which `as_text` takes away. Numbers are written as they are, so that reading them gives the
same double again. Every file appears
whole or not at all.
"""

from __future__ import annotations

import csv
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import astuple, fields
from pathlib import Path
from typing import Any, Literal, get_type_hints

from layerwise.errors import RunError, near_matches
from layerwise.results.database import explained
from layerwise.results.rows import Loss, PlanRecord, Score
from layerwise.results.run import MANIFEST, Run, write_whole

Format = Literal["parquet", "csv"]
Row = Loss | Score | PlanRecord

_PER_GROUP = 100_000
"""Rows held in memory at once, and in one Parquet row group."""

_FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\n", "'", "＝", "＋", "－", "＠")
"""How a text begins that a spreadsheet would compute, or that could be taken for one which was kept from it."""


def export(run: Run, folder: Path | str | None = None, format: Format = "parquet") -> tuple[Path, ...]:
    """Write the losses, scores and plans of `run` to `folder` (by default its `exports`); return the files.

    Raises `RunError` for an unknown format and when the folder cannot be written.
    """
    writers = {"parquet": _write_parquet, "csv": _write_csv}
    if format not in writers:
        raise RunError(f"Cannot export as {format!r}: {near_matches(format, writers)}.")
    folder = run.exports if folder is None else Path(folder)
    tables: tuple[tuple[str, type[Row], Iterable[Row]], ...] = (
        ("losses", Loss, run.store.losses()),
        ("scores", Score, run.store.scores()),
        ("plans", PlanRecord, run.store.plans()),
    )
    written = []
    with explained(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for name, kind, rows in tables:
            path = folder / f"{name}.{format}"
            draft = path.with_name(f".{path.name}.draft")
            try:
                writers[format](draft, kind, rows, run.manifest.to_json())
                draft.replace(path)
            finally:
                draft.unlink(missing_ok=True)
            written.append(path)
        if format == "csv":
            write_whole(folder / MANIFEST, run.manifest.to_json().encode())
            written.append(folder / MANIFEST)
    return tuple(written)


def _write_parquet(path: Path, kind: type[Row], rows: Iterable[Row], manifest: str) -> None:
    import pyarrow as arrow
    from pyarrow import parquet

    types = {str: arrow.string(), int: arrow.int64(), float: arrow.float64()}
    names = [item.name for item in fields(kind)]
    schema = arrow.schema(
        [arrow.field(name, types[base], nullable) for name, (base, nullable) in _columns(kind).items()],
        metadata={"layerwise.manifest": manifest},
    )
    with parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        for group in _groups(rows):
            columns = {name: [getattr(row, name) for row in group] for name in names}
            writer.write_table(arrow.table(columns, schema=schema))


def _write_csv(path: Path, kind: type[Row], rows: Iterable[Row], manifest: str) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(item.name for item in fields(kind))
        writer.writerows([_inert(value) for value in astuple(row)] for row in rows)


def as_text(cell: str) -> str:
    """The text that a cell of an exported CSV holds.

    >>> as_text("'=1+1"), as_text("0-3")
    ('=1+1', '0-3')
    """
    return cell.removeprefix("'")


def _inert(value: object) -> object:
    """A value for a cell that no spreadsheet takes for a formula; numbers are none."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULAS) else value


def _columns(kind: type[Row]) -> dict[str, tuple[type, bool]]:
    """Each field's base type and whether it may be `None`, from the annotations: `float | None` -> float,
    yes.
    """
    columns: dict[str, tuple[type, bool]] = {}
    for name, hint in get_type_hints(kind).items():
        options: tuple[Any, ...] = getattr(hint, "__args__", (hint,))
        (base,) = (option for option in options if option is not type(None))
        columns[name] = (base, type(None) in options)
    return columns


def _groups(rows: Iterable[Row]) -> Iterator[list[Row]]:
    remaining = iter(rows)
    while group := list(itertools.islice(remaining, _PER_GROUP)):
        yield group
