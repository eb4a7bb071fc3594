"""Files that hold a document a row: JSON lines, and parquet.

A row has a `text`, and optionally an `id`, a `task` and an `answer_start`. Rows are read one after another, so a file
may be larger than the memory; what is kept is the documents.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from layerwise.bounded import Unreadable, parse_json, shortened, shown
from layerwise.data.parquet_batches import column_names, parquet_batches
from layerwise.data.text.documents import Document
from layerwise.data.text.sources.streams import lines
from layerwise.errors import DataError

PARQUET = ".parquet"
FIELDS = ("text", "id", "task", "answer_start")


def json_documents(file: Path, name: str, task: str) -> Iterator[Document]:
    """The documents of a file of JSON lines, whose ids end in the number of the line.

    Raises `DataError` for a line that is no such row, and for a file without one.
    """
    is_empty = True
    try:
        for number, (offset, line) in enumerate(lines(file), start=1):
            line = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
            text = _decoded(line, offset, file)
            if text.strip():
                is_empty = False
                yield _json_document(text, f"{file}, line {number}", f"{name}:{number}", task)
    except Unreadable as fault:
        raise DataError(f"{file} {fault}: copy it again, or name a file that can be read") from fault
    if is_empty:
        raise DataError(f'{file} is empty: it should hold one object a line, such as {{"text": "..."}}')


def parquet_documents(file: Path, name: str, task: str) -> Iterator[Document]:
    """The documents of a parquet file, whose ids end in the number of the row. Raises `DataError` as for JSON lines."""
    number = 0
    try:
        columns = column_names(file)
        if "text" not in columns:
            raise DataError(
                f"{file} has the columns {shortened(', '.join(columns))}; its texts should be in one called text"
            )
        for batch in parquet_batches(file, FIELDS):
            for row in batch.to_pylist():
                number += 1
                yield row_document(row, f"{file}, row {number}", f"{name}:{number}", task)
    except Unreadable as fault:
        raise DataError(f"{file} {fault}: fetch it again") from fault
    if not number:
        raise DataError(f"{file} is empty: it should hold a document a row")


def row_document(record: object, location: str, fallback_id: str, task: str) -> Document:
    """The document of a row. Raises `DataError`, which names the `location`, for one without a text."""
    if not isinstance(record, Mapping) or not isinstance(record.get("text"), str) or not record["text"].strip():
        description = (
            f"the keys {shortened(', '.join(sorted(record)))}" if isinstance(record, Mapping) else type(record).__name__
        )
        raise DataError(f'{location}: found {description}; each line should be an object with a non-empty "text"')
    start = record.get("answer_start")
    if start is not None and (not isinstance(start, int) or isinstance(start, bool)):
        raise DataError(f"{location}: answer_start is {shown(start)}; it should be a number of characters, or left out")
    labels: dict[str, Any] = {"id": record.get("id", fallback_id), "task": record.get("task", task)}
    for key, value in labels.items():
        if type(value) not in (str, int):
            raise DataError(f"{location}: {key} is {shown(value)}; it should be text or a whole number, or left out")
    try:
        return Document(str(labels["id"]), record["text"], str(labels["task"]), start)
    except DataError as error:
        raise DataError(f"{location}: {error}") from error


def first_binary_byte(content: bytes) -> int | None:
    """The offset of the first byte that no UTF-8 text holds: a NUL, or one that does not decode."""
    nul = content.find(b"\0")
    try:
        content.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start if nul < 0 else min(nul, error.start)
    return None if nul < 0 else nul


def not_text(file: Path, offset: int, value: int) -> DataError:
    """The refusal of a file with a byte that no text holds."""
    return DataError(
        f"{file} is not UTF-8 text: byte {offset} is 0x{value:02x}; "
        "layerwise reads plain text, so convert the file (iconv -t UTF-8) or name another"
    )


def _decoded(line: bytes, start: int, file: Path) -> str:
    offset = first_binary_byte(line)
    if offset is not None:
        raise not_text(file, start + offset, line[offset])
    return line.decode()


def _json_document(line: str, location: str, fallback_id: str, task: str) -> Document:
    try:
        record = parse_json(line)
    except Unreadable as fault:
        raise DataError(f"{location}: it {fault}; each line should be an object with a text") from fault
    return row_document(record, location, fallback_id, task)
