"""The rows of GLUE and SuperGLUE files as flat records, whichever form they are published in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from layerwise.bounded import TEXT_SIZE, Unreadable, decoded, read_bytes, shown
from layerwise.data.suites.glue_forms import Form
from layerwise.data.suites.records import FileRecord, read_records
from layerwise.errors import DataError

HEADERLESS: Mapping[str, tuple[str, ...]] = {
    "cola": ("source", "label", "mark", "sentence"),
    "sst2": ("sentence", "label"),
}
"""The columns of tables without a header."""

INCOMPLETE = frozenset({"qqp"})
"""The tasks whose published table has rows that lack a question; they are left out and counted."""


class TaskRows(NamedTuple):
    """The rows of a file, and how many were left out because something is missing in them."""

    records: tuple[FileRecord, ...]
    left_out: int = 0


Reader = Callable[[Path, str, Form], TaskRows]
"""Reads the file of a task whose columns have these names."""


def read_flat(path: Path, name: str, form: Form) -> TaskRows:
    """JSON lines, an example each, or a table without a header where the file is one."""
    return read_headerless(path, name, form) if path.suffix == ".tsv" else TaskRows(read_records(path, kind=".jsonl"))


def read_headerless(path: Path, name: str, form: Form) -> TaskRows:
    """A tab-separated table without a header: quotation marks are characters like any other."""
    columns = HEADERLESS[name]
    records = []
    for number, cells in _cells(path):
        if len(cells) != len(columns):
            raise DataError(
                f"{path}, line {number}: {len(cells)} columns, but {name} has {len(columns)} "
                f"({', '.join(columns)}), separated by tabs"
            )
        records.append(FileRecord(dict(zip(columns, cells, strict=True)), str(path), number))
    return TaskRows(tuple(records))


def read_headed(path: Path, name: str, form: Form) -> TaskRows:
    """A tab-separated table whose first line names its columns.

    Raises `DataError` for a table without the columns of `form`, and for a row with more or fewer cells than the
    header; of the tasks in `INCOMPLETE` such rows, and those with an empty cell, are left out.
    """
    lines = _cells(path)
    _, header = next(lines, (1, []))
    missing = [column for column in form.columns if column not in header]
    if missing:
        raise DataError(
            f"{path}, line 1: the header has no column {missing[0]!r} ({shown(header)} was found); take the file as "
            f"GLUE publishes it, with the columns {', '.join(form.columns)}"
        )
    records, left_out = [], 0
    for number, cells in lines:
        whole = len(cells) == len(header)
        columns = dict(zip(header, cells, strict=whole))
        if name in INCOMPLETE and not all(columns.get(column, "").strip() for column in form.columns):
            left_out += 1
        elif not whole:
            raise DataError(
                f"{path}, line {number}: {len(cells)} columns, but the header names {len(header)} "
                f"({', '.join(header)}), separated by tabs"
            )
        else:
            records.append(FileRecord(columns, str(path), number))
    if not records:
        raise DataError(f"{path} holds no row below its header; take the file as GLUE publishes it")
    return TaskRows(tuple(records), left_out)


def read_superglue(path: Path, name: str, form: Form) -> TaskRows:
    """The JSON lines of SuperGLUE; MultiRC's passages are taken apart into one record an answer."""
    rows = read_records(path, kind=".jsonl")
    if name == "multirc":
        return TaskRows(tuple(answer for row in rows for answer in _answers(row)))
    return TaskRows(tuple(map(_spans, rows)) if name == "wsc" else rows)


def _cells(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The number of every line that is not empty, and its cells."""
    try:
        lines = decoded(read_bytes(path, TEXT_SIZE)).split("\n")
    except Unreadable as fault:
        raise DataError(f"{path} {fault}; check the file, fetch it again, or convert it to UTF-8 text") from fault
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield number, line.rstrip("\r").split("\t")


def _answers(row: FileRecord) -> Iterator[FileRecord]:
    """A record for each answer to each question about a passage of MultiRC."""
    passage = _object(row.columns, "passage", row)
    for question in _objects(passage, "questions", row):
        for answer in _objects(question, "answers", row):
            columns = {
                "paragraph": passage.get("text"),
                "question": question.get("question"),
                "answer": answer.get("text"),
                **({"label": answer["label"]} if "label" in answer else {}),
            }
            yield FileRecord(columns, row.file, row.line)


def _spans(row: FileRecord) -> FileRecord:
    """A record of WSC with the two spans of its `target` beside the passage."""
    rest = {name: value for name, value in row.columns.items() if name != "target"}
    return FileRecord({**_object(row.columns, "target", row), **rest}, row.file, row.line)


def _object(columns: Mapping[str, Any], name: str, row: FileRecord) -> Mapping[str, Any]:
    value = columns.get(name)
    if not isinstance(value, dict):
        raise DataError(f"{row.location}: {name!r} holds {shown(value)}; take the file as SuperGLUE publishes it")
    return value


def _objects(columns: Mapping[str, Any], name: str, row: FileRecord) -> Sequence[Mapping[str, Any]]:
    value = columns.get(name)
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise DataError(f"{row.location}: {name!r} holds {shown(value)}; take the file as SuperGLUE publishes it")
    return value
