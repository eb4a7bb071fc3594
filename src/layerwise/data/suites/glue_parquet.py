"""The parquet files of GLUE and SuperGLUE tasks on the Hugging Face hub (`nyu-mll/glue`, `super_glue`).

A split is one file or several: `train-00000-of-00002.parquet` and `train-00001-of-00002.parquet`, `train.parquet`, or
`train/0000.parquet` and those that follow it. Columns and labels are those of `glue_forms.FORMS`; only SuperGLUE's RTE
has other columns than GLUE's, so the form of a file follows from its columns.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from layerwise.bounded import Unreadable
from layerwise.data.parquet_batches import column_names, parquet_batches
from layerwise.data.suites.glue_forms import FORMS, SUPERGLUE_FORMS, Form
from layerwise.data.suites.glue_tables import TaskRows
from layerwise.data.suites.records import FileRecord
from layerwise.errors import DataError

_NUMBERED = re.compile(r"(?P<split>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.parquet")
_DIGITS = 7
"""Digits of a number of 32 bits: scores are published with three decimals, and stored so."""


def split_file(folder: Path, split: str) -> Path | None:
    """The first file of a split in a folder, or `None` where there is none."""
    numbered = sorted(path for path in folder.glob(f"{split}-*.parquet") if _NUMBERED.fullmatch(path.name))
    usual = (folder / f"{split}.parquet", folder / split / "0000.parquet")
    return next((path for path in (*numbered, *usual) if path.is_file()), None)


def form_of(path: Path, name: str) -> Form:
    """What the columns of a task are called in a file: as in SuperGLUE where all of its are there."""
    form = SUPERGLUE_FORMS.get(name, FORMS[name])
    try:
        return form if set(form.columns) <= set(column_names(path)) else FORMS[name]
    except Unreadable as fault:
        raise _unreadable(path, fault) from fault


def read_parquet(path: Path, name: str, form: Form) -> TaskRows:
    """The rows of all files of the split whose first file is `path`.

    Raises `DataError` for a file that cannot be read or holds more than text is read of, for a split of which a file
    is missing, and for one without a row.
    """
    records = tuple(record for part in _parts(path) for record in _records(part))
    if not records:
        raise DataError(f"{path} holds no row; fetch it again")
    return TaskRows(records)


def _parts(path: Path) -> Sequence[Path]:
    numbered = _NUMBERED.fullmatch(path.name)
    if numbered is None:
        return sorted(path.parent.glob("[0-9]*.parquet")) if path.stem.isdigit() else (path,)
    split, count = numbered["split"], int(numbered["count"])
    parts = [path.with_name(f"{split}-{number:05}-of-{count:05}.parquet") for number in range(count)]
    missing = [part.name for part in parts if not part.is_file()]
    if missing:
        raise DataError(
            f"{path.parent} holds {count - len(missing)} of the {count} files of the split {split!r}: fetch "
            f"{missing[0]} too"
        )
    return parts


def _records(path: Path) -> Iterator[FileRecord]:
    number = 0
    try:
        for batch in parquet_batches(path):
            columns = {name: _values(column) for name, column in zip(batch.schema.names, batch.columns, strict=True)}
            for row in range(batch.num_rows):
                number += 1
                yield FileRecord({name: values[row] for name, values in columns.items()}, str(path), number, "row")
    except Unreadable as fault:
        raise _unreadable(path, fault) from fault


def _values(column: Any) -> list[Any]:
    import pyarrow

    values: list[Any] = column.to_pylist()
    if not pyarrow.types.is_float32(column.type):
        return values
    return [None if value is None else float(f"{value:.{_DIGITS}g}") for value in values]


def _unreadable(path: Path, fault: Unreadable) -> DataError:
    return DataError(f"{path} {fault}; fetch it again")
