"""What texts are read from beside plain files: packed files, files of rows, and datasets of the Hugging Face hub.

Files are read as streams, a piece at a time: one of any length takes no more memory than a line. Files of JSON lines
and of parquet hold a document a row, with a `text`, and optionally an `id`, a `task` and an `answer_start`.

    hf:NAME                          the split train of a dataset of the hub, or of a folder in a format of `datasets`
    hf:NAME:CONFIGURATION            of one configuration
    hf:NAME:CONFIGURATION:SPLIT      another split; hf:NAME::SPLIT without a configuration
    hf:NAME:CONFIGURATION:SPLIT[:N]  its first N documents
    hf:NAME@REVISION...              as it was at a commit
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import pyarrow
from huggingface_hub import HfApi

from layerwise.bounded import (
    RATIO,
    TEXT_SIZE,
    UNPACKED,
    Unreadable,
    check_file,
    check_size,
    parse_json,
    shortened,
    shown,
    size_in_words,
)
from layerwise.data.parquet_batches import column_names, parquet_batches
from layerwise.data.text.documents import Document
from layerwise.errors import DataError

PACKED: Mapping[str, Literal["gzip", "zstd"]] = {".gz": "gzip", ".zst": "zstd"}
"""The endings of files that are unpacked while they are read."""

_BLOCK = 2**20

PARQUET = ".parquet"
FIELDS = ("text", "id", "task", "answer_start")

PREFIX = "hf:"

_SPELLING = re.compile(
    r"hf:(?P<name>[^:@]+)(@(?P<revision>[^:@]+))?(:(?P<configuration>[^:\[]*))?"
    r"(:(?P<split>[^:\[]+)(\[:(?P<limit>[0-9]{1,12})\])?)?"
)


def unpacked_name(name: str) -> str:
    """The name of a file without the ending that says how it is packed.

    >>> unpacked_name("words.jsonl.zst"), unpacked_name("words.txt")
    ('words.jsonl', 'words.txt')
    """
    return next((name.removesuffix(ending) for ending in PACKED if name.endswith(ending)), name)


def blocks(path: Path) -> Iterator[bytes]:
    """Yield the content of a file, unpacked. Raises `Unreadable` for a damaged one, and for one that is a bomb."""
    check_file(path)
    size, read = path.stat().st_size, 0
    kind = PACKED.get(path.suffix)
    bound = None if kind is None else max(UNPACKED, RATIO * size)
    try:
        with path.open("rb") as packed, pyarrow.input_stream(packed, compression=kind) as file:
            while block := file.read(_BLOCK):
                read += len(block)
                if bound is not None and read > bound:
                    raise Unreadable(f"has {size_in_words(size)} and unpacks to more than {size_in_words(bound)}")
                yield block
    except OSError as error:
        reason = getattr(error, "strerror", None) or error
        raise Unreadable(
            f"cannot be read: {reason}" if kind is None else f"is not a whole {kind} file ({error})"
        ) from error


def lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a file without line feed, each with its byte offset; raises `Unreadable` for one too long."""
    start, rest = 0, b""
    for block in blocks(path):
        *whole, rest = (rest + block).split(b"\n")
        check_size(len(rest), TEXT_SIZE)
        for line in whole:
            yield start, line
            start += len(line) + 1
    if rest:
        yield start, rest


def read_text(path: Path) -> str:
    """Read a file as text, unpacked, with line ends as `\\n` and without a byte-order mark.

    Raises `DataError` for a file that is not text or too large.
    """
    content = bytearray()
    try:
        check_file(path, TEXT_SIZE)
        for block in blocks(path):
            content += block
            check_size(len(content), TEXT_SIZE)
    except Unreadable as fault:
        raise _unreadable(path, fault) from fault
    return _decoded(bytes(content), 0, path).removeprefix("\ufeff").replace("\r\n", "\n")


def _unreadable(path: Path, fault: Unreadable) -> DataError:
    return DataError(f"{path} {fault}: copy it again, or name a file or a folder that can be read")


def json_documents(file: Path, name: str, task: str) -> Iterator[Document]:
    """Return the documents of a JSON lines file, with ids that end in the line number.

    Raises `DataError` for a malformed line, and for a file without lines.
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
        raise _unreadable(file, fault) from fault
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


def _decoded(content: bytes, start: int, file: Path) -> str:
    nul = content.find(b"\0")
    try:
        text = content.decode()
        offset = nul
    except UnicodeDecodeError as error:
        offset = error.start if nul < 0 else min(nul, error.start)
    if offset >= 0:
        raise DataError(
            f"{file} is not UTF-8 text: byte {start + offset} is 0x{content[offset]:02x}; "
            "layerwise reads plain text, so convert the file (iconv -t UTF-8) or name another"
        )
    return text


def _json_document(line: str, location: str, fallback_id: str, task: str) -> Document:
    try:
        record = parse_json(line)
    except Unreadable as fault:
        raise DataError(f"{location}: it {fault}; each line should be an object with a text") from fault
    return row_document(record, location, fallback_id, task)


@dataclass(frozen=True, slots=True)
class HubText:
    """A split of a dataset, or the first `limit` of its rows."""

    name: str
    revision: str | None
    configuration: str | None
    split: str
    limit: int | None

    @classmethod
    def parse(cls, text: str) -> HubText:
        """The text that is spelt as the module's opening says. Raises `DataError` for another spelling."""
        match = _SPELLING.fullmatch(text)
        if match is None:
            raise DataError(
                f"a dataset of the hub is written as hf:NAME, hf:NAME:CONFIGURATION or hf:NAME:CONFIGURATION:SPLIT, "
                f"with [:N] behind the split for its first N documents; found {shortened(text)!r}"
            )
        parts = match.groupdict()
        limit = None if parts["limit"] is None else int(parts["limit"])
        return cls(parts["name"], parts["revision"], parts["configuration"] or None, parts["split"] or "train", limit)

    def documents(self, task: str) -> Iterator[Document]:
        """Its documents, whose ids end in the number of the row. Raises `DataError` where it cannot be read."""
        import datasets

        try:
            rows = datasets.load_dataset(
                self.name, self.configuration, split=self.split, revision=self.revision, streaming=True
            )
            columns = rows.column_names
            if columns is not None and "text" not in columns:
                raise DataError(
                    f"{self.name} has the columns {shortened(', '.join(columns))}; its texts should be in one called "
                    "text"
                )
            for number, row in enumerate(islice(rows, self.limit), start=1):
                record = {name: row[name] for name in FIELDS if row.get(name) is not None}
                if record.get("text", "").strip():  # many datasets hold empty lines
                    yield row_document(record, f"{self.name}, row {number}", f"{self.split}:{number}", task)
        except DataError:
            raise
        except Exception as error:  # the hub, the network, the disk and the formats each have errors of their own
            reason = str(error).split("\n")[0] or type(error).__name__
            raise DataError(
                f"the dataset {self.name} cannot be read ({shortened(reason, 200)}); write a dataset of the hub with a "
                "column of texts, as in hf:wikitext:wikitext-2-raw-v1, or a folder in one of its formats"
            ) from error

    def version(self) -> str | None:
        """The commit that is read now; `None` for a folder, whose files tell."""
        if Path(self.name).is_dir():
            return None
        try:
            return str(HfApi().dataset_info(self.name, revision=self.revision).sha)
        except Exception as error:  # the network, the hub, and the rights to read there
            reason = shortened(str(error).split("\n")[0] or type(error).__name__, 200)
            raise DataError(
                f"the hub does not say which version of {self.name} there is ({reason}); write hf:NAME for a dataset "
                "of the hub, or hf:FOLDER for one on this disk"
            ) from error

    def files(self) -> list[Path]:
        """The files of a folder; none where the dataset is on the hub."""
        folder = Path(self.name)
        if not folder.is_dir():
            return []
        return sorted(Path(root) / file for root, _, files in os.walk(folder) for file in files)


def is_hub_text(path: Path | str) -> bool:
    return str(path).startswith(PREFIX)
