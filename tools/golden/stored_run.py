"""The rows of a run as a JSON file that can be read in a review: a row a line, under the names of its columns.

Columns are read by name. One that a row does not have, because it is newer than the file or because the row ends before
it, has its default; one that no row has any more is refused. Numbers are written so that reading gives the same bits.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from layerwise.report import ReportData
from layerwise.results.rows import Loss, Note, PlanRecord, Score

FILE = "run.json"
TABLES: Mapping[str, type[Any]] = {"plans": PlanRecord, "scores": Score, "losses": Loss, "notes": Note}


def write_run(path: Path, data: ReportData) -> None:
    """Write the rows of a run to the file at `path`."""
    path.write_text("\n".join(_lines(data)) + "\n", encoding="utf-8")


def read_run(path: Path) -> ReportData:
    """The rows that `write_run` wrote. Raises `ValueError` for a column that its kind of row does not have."""
    content = json.loads(path.read_text(encoding="utf-8"))
    tables = {name: tuple(_rows(kind, content[name], f"{name} in {path}")) for name, kind in TABLES.items()}
    manifest = {name: tuple(each) if isinstance(each, list) else each for name, each in content["manifest"].items()}
    return ReportData(manifest, level=content["level"], **tables)


def _lines(data: ReportData) -> Iterator[str]:
    yield f'{{"manifest": {json.dumps(data.manifest, indent=1, ensure_ascii=False)},'
    yield f'"level": {json.dumps(data.level)},'
    for number, (name, kind) in enumerate(TABLES.items(), start=1):
        columns = [item.name for item in fields(kind)]
        rows = [json.dumps(_cells(row, columns), ensure_ascii=False, allow_nan=False) for row in getattr(data, name)]
        yield f'"{name}": {{"columns": {json.dumps(columns)}, "rows": ['
        yield from (f"{row}," for row in rows[:-1])
        yield from rows[-1:]
        yield "]}," if number < len(TABLES) else "]}}"


def _cells(row: object, columns: Sequence[str]) -> list[object]:
    """The cells of a row up to the last that says anything."""
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
