"""Store the rows of a run as a JSON file that can be reviewed, with one row per line.

Columns are read by name. A row may omit empty columns at its end, and an unknown column is rejected. Numbers are
written exactly.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from layerwise.page import ReportData
from layerwise.results.rows import Loss, Note, PlanRecord, Score

FILE = "run.json"
PACKED = "run.json.gz"
"""File name of a run that is too long to be read, which is compressed."""
LONGEST = 60_000
"""Maximum number of characters of a file that is not compressed."""

TABLES: Mapping[str, type[Any]] = {"plans": PlanRecord, "scores": Score, "losses": Loss, "notes": Note}
_ROW = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def write_run(folder: Path, data: ReportData) -> None:
    text = text_of(data)
    for name in (FILE, PACKED):
        (folder / name).unlink(missing_ok=True)
    if len(text) <= LONGEST:
        (folder / FILE).write_text(text, encoding="utf-8")
    else:
        (folder / PACKED).write_bytes(gzip.compress(text.encode(), mtime=0))


def read_run(folder: Path) -> ReportData:
    """Read the rows that `write_run` wrote. Raises `ValueError` for an unknown column."""
    return rows_of(stored_text(folder), str(folder))


def has_run(folder: Path) -> bool:
    return (folder / FILE).is_file() or (folder / PACKED).is_file()


def stored_text(folder: Path) -> str:
    packed = folder / PACKED
    return gzip.decompress(packed.read_bytes()).decode() if packed.is_file() else (folder / FILE).read_text("utf-8")


def text_of(data: ReportData) -> str:
    return "\n".join(_lines(data)) + "\n"


def rows_of(text: str, where: str) -> ReportData:
    """Parse the rows of a run from JSON. Errors call the source `where`."""
    content = json.loads(text)
    tables: dict[str, Any] = {
        name: tuple(_rows(kind, content[name], f"{name} in {where}")) for name, kind in TABLES.items()
    }
    manifest = {name: tuple(each) if isinstance(each, list) else each for name, each in content["manifest"].items()}
    return ReportData(manifest, level=content["level"], **tables)


def _lines(data: ReportData) -> Iterator[str]:
    yield f'{{"manifest": {json.dumps(data.manifest, indent=1, ensure_ascii=False)},'
    yield f'"level": {json.dumps(data.level)},'
    for number, (name, kind) in enumerate(TABLES.items(), start=1):
        columns = _used(kind, getattr(data, name))
        rows = [_ROW.encode(_cells(row, columns)) for row in getattr(data, name)]
        yield f'"{name}": {{"columns": {json.dumps(columns)}, "rows": ['
        yield from (f"{row}," for row in rows[:-1])
        yield from rows[-1:]
        yield "]}," if number < len(TABLES) else "]}}"


def _used(kind: type[Any], rows: Sequence[object]) -> list[str]:
    """Return the required columns, and the others that have a value in some row."""
    columns = {item.name: item.default for item in fields(kind)}
    return [
        name
        for name, default in columns.items()
        if default is MISSING or any(getattr(row, name) is not None for row in rows)
    ]


def _cells(row: object, columns: Sequence[str]) -> list[object]:
    """Return the cells of a row, without the empty ones at its end."""
    cells = [getattr(row, name) for name in columns]
    while cells and cells[-1] is None:
        cells.pop()
    return cells


def _rows(kind: type[Any], table: Mapping[str, Any], where: str) -> Iterator[Any]:
    defaults = {item.name: None if item.default is MISSING else item.default for item in fields(kind)}
    unknown = sorted(set(table["columns"]) - set(defaults))
    if unknown:
        raise ValueError(f"{where} has the columns {unknown}, which a {kind.__name__} does not have; rename them there")
    for cells in table["rows"]:
        yield kind(**{**defaults, **dict(zip(table["columns"], cells, strict=False))})
