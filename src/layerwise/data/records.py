"""Read rows of JSON lines, CSV, TSV and Parquet files, with the location of each row.

`.gz` and `.zst` files are decompressed in blocks, and zip archives of tables in memory (EWoK's is encrypted against
crawlers). The decompressed size is limited. Errors name the file, line and column.
"""

from __future__ import annotations

import csv
import io
import os
import zipfile
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import pyarrow
from pyarrow import parquet, types

from layerwise.bounded import (
    MAX_TEXT_SIZE,
    MAX_UNPACK_RATIO,
    MAX_UNPACKED_SIZE,
    UnreadableError,
    check_file,
    check_size,
    format_bytes,
    parse_json,
    shortened,
    shown,
)
from layerwise.errors import DataError, near_matches

PACKED: Mapping[str, Literal["gzip", "zstd"]] = {".gz": "gzip", ".zst": "zstd"}
"""Suffixes of compressed files."""

KINDS = (".jsonl", ".csv", ".tsv")
"""Suffixes of table files, which may be followed by a suffix in `PACKED`."""

_BLOCK = 2**20
_MAX_ROWS = 1_024
_ROW_SIZE = 64


@dataclass(frozen=True, slots=True)
class FileRecord:
    """One row of a file. `line` counts lines from 1, or rows if `unit` is `row` (binary files)."""

    columns: Mapping[str, Any]
    file: str
    line: int
    unit: Literal["line", "row"] = "line"

    def cell(self, column: str) -> Any:
        """Return the value of `column`. If the row lacks it, raises `DataError` with file, line and column."""
        if column not in self.columns:
            raise DataError(f"{self.location}: unknown column {column!r}; {near_matches(column, self.columns)}")
        return self.columns[column]

    def text(self, column: str) -> str:
        """Return the text in `column`. If it has none, raises `DataError` with file, line and column."""
        value = self.cell(column)
        if not isinstance(value, str) or not value.strip():
            raise DataError(f"{self.location}: column {column!r} must be text, got {shown(value)}.")
        if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
            raise DataError(
                f"{self.location}: column {column!r} has an unpaired surrogate, which no tokenizer can read. Repair "
                "the text."
            )
        return value

    @property
    def location(self) -> str:
        return f"{self.file}, {self.unit} {self.line}"


def strip_compression_suffix(name: str) -> str:
    """Remove the compression suffix from a file name.

    >>> strip_compression_suffix("words.jsonl.zst"), strip_compression_suffix("words.txt")
    ('words.jsonl', 'words.txt')
    """
    return next((name.removesuffix(ending) for ending in PACKED if name.endswith(ending)), name)


def find_table_suffix(name: str) -> str | None:
    """Return the suffix of a table file (one of `KINDS`), or `None` for other files.

    >>> find_table_suffix("blimp.jsonl.gz"), find_table_suffix("notes.txt")
    ('.jsonl', None)
    """
    ending = Path(strip_compression_suffix(name.lower())).suffix
    return ending if ending in KINDS else None


def walk_files(folder: Path) -> Iterator[Path]:
    """Yield all files and directories below `folder`, sorted by name and following each link once."""
    searched: set[str] = set()
    for root, folders, names in os.walk(folder, followlinks=True):
        real = os.path.realpath(root)
        if real in searched:
            folders.clear()
            continue
        searched.add(real)
        folders.sort()
        yield from (Path(root, name) for name in sorted((*folders, *names)))


def read_text(path: Path) -> str:
    """Read a text file. It is decompressed, line ends are normalized, and a byte-order mark is removed.

    Raises `DataError` if the file is not text or is too large.
    """
    content = bytearray()
    try:
        check_file(path, MAX_TEXT_SIZE)
        for block in _blocks(path):
            content += block
            check_size(len(content), MAX_TEXT_SIZE)
    except UnreadableError as fault:
        raise _refusal(path, fault) from fault
    return _decoded(bytes(content), 0, str(path)).removeprefix("\ufeff").replace("\r\n", "\n")


def read_records(path: Path, kind: str | None = None) -> tuple[FileRecord, ...]:
    """Read all rows of a table. `kind` is its format, one of `KINDS` or `.parquet` (default: from the file name).

    Raises `DataError` for another format, an unreadable file, or a file without rows.
    """
    kind = kind or find_table_suffix(path.name)
    if kind is None:
        raise DataError(f"{path} must be a table that ends in {', '.join(KINDS)} (or .gz or .zst of it).")
    return tuple(
        read_parquet_rows(path) if kind == ".parquet" else _table(_lines(path, MAX_TEXT_SIZE), str(path), kind)
    )


def read_json_rows(path: Path) -> Iterator[FileRecord]:
    return _table(_lines(path), str(path), ".jsonl")


def read_tables(path: Path, password: str | None = None) -> Iterator[tuple[str, tuple[FileRecord, ...]]]:
    """Yield name and rows of the table at `path`, or of each table in a zip archive (decrypted with `password`).

    Raises the errors of `read_records`, and `DataError` if an archive is damaged, too large, has no tables, or is
    encrypted and `password` is missing or wrong.
    """
    if not zipfile.is_zipfile(path):
        yield path.name, read_records(path)
        return
    remaining = min(MAX_TEXT_SIZE, max(MAX_UNPACKED_SIZE, MAX_UNPACK_RATIO * path.stat().st_size))
    with _opened(path) as archive:
        names = sorted(name for name in archive.namelist() if name.endswith(KINDS))
        if not names:
            raise DataError(f"{path} has no .jsonl, .csv or .tsv file. Pass an archive of minimal pairs.")
        for name in names:
            content = _decrypt(archive, name, path, password, remaining)
            remaining -= len(content)
            location = f"{path}:{name}"
            yield (
                PurePosixPath(name).name,
                tuple(_table(_text_lines([content], location), location, find_table_suffix(name) or "")),
            )


def read_parquet_rows(path: Path, columns: Collection[str] | None = None) -> Iterator[FileRecord]:
    """Yield the rows of a Parquet file. Of `columns` (default: all), only those of texts or numbers are read.

    Raises `DataError` if the file is not Parquet, has no rows, or decompresses to more than `MAX_UNPACK_RATIO` times
    its size.
    """
    number = 0
    try:
        for batch in _parquet_batches(path, columns):
            for row in batch.to_pylist():
                number += 1
                yield FileRecord(row, str(path), number, "row")
    except UnreadableError as fault:
        raise DataError(f"{path} {fault}. Download it again.") from fault
    if not number:
        raise DataError(f"{path} has no rows. Download it again.")


def _parquet_batches(path: Path, columns: Collection[str] | None) -> Iterator[pyarrow.RecordBatch]:
    try:
        check_file(path)
        with parquet.ParquetFile(path) as table:
            size, read = path.stat().st_size, 0
            bound = max(MAX_UNPACKED_SIZE, MAX_UNPACK_RATIO * size)
            kinds = {each.name: each.type for each in table.schema_arrow if columns is None or each.name in columns}
            plain = [name for name, kind in kinds.items() if _is_plain(kind)]
            if not plain:
                names = shortened(", ".join(table.schema_arrow.names))
                required = "texts or numbers" if columns is None else " or ".join(columns)
                raise UnreadableError(f"has no column of {required} (its columns are {names})")
            groups = map(table.metadata.row_group, range(table.metadata.num_row_groups))
            chunks = [group.column(number) for group in groups for number in range(group.num_columns)]
            sizes = [each.total_uncompressed_size for each in chunks if each.path_in_schema in plain]
            if sum(sizes) > bound:
                raise UnreadableError(f"decompresses to {format_bytes(sum(sizes))} (at most {format_bytes(bound)})")
            # No value is larger than its column, so no batch is larger than the bound.
            rows = max(1, min(_MAX_ROWS, bound // max([1, *sizes])))
            for batch in map(_decode_dictionaries, table.iter_batches(rows, columns=plain)):
                read += max(_ROW_SIZE * batch.num_rows, batch.nbytes)
                if read > bound:
                    raise UnreadableError(
                        f"has {format_bytes(size)} and decompresses to more than {format_bytes(bound)}"
                    )
                yield batch
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as fault:
        reason = shortened(str(fault).split("\n")[0]) or type(fault).__name__
        raise UnreadableError(f"is not a readable Parquet file ({reason})") from fault


def _decode_dictionaries(batch: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
    columns = [each.dictionary_decode() if types.is_dictionary(each.type) else each for each in batch.columns]
    return pyarrow.RecordBatch.from_arrays(columns, batch.schema.names)


def _is_plain(kind: pyarrow.DataType) -> bool:
    kind = kind.value_type if types.is_dictionary(kind) else kind
    is_text = types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)
    return bool(is_text or types.is_primitive(kind) or types.is_null(kind))


def _blocks(path: Path) -> Iterator[bytes]:
    check_file(path)
    size, read = path.stat().st_size, 0
    kind = PACKED.get(path.suffix.lower())
    bound = None if kind is None else max(MAX_UNPACKED_SIZE, MAX_UNPACK_RATIO * size)
    try:
        with path.open("rb") as packed, pyarrow.input_stream(packed, compression=kind) as file:
            while block := file.read(_BLOCK):
                read += len(block)
                if bound is not None and read > bound:
                    raise UnreadableError(
                        f"has {format_bytes(size)} and decompresses to more than {format_bytes(bound)}"
                    )
                yield block
    except OSError as error:
        reason = getattr(error, "strerror", None) or error
        raise UnreadableError(
            f"cannot be read: {reason}" if kind is None else f"is not a complete {kind} file ({error})"
        ) from error


def _lines(path: Path, max_size: int | None = None) -> Iterator[str]:
    try:
        check_file(path, max_size)
        yield from _text_lines(_blocks(path), str(path))
    except UnreadableError as fault:
        raise _refusal(path, fault) from fault


def _text_lines(blocks: Iterable[bytes], name: str) -> Iterator[str]:
    start, rest = 0, b""
    for block in blocks:
        *complete, rest = (rest + block).split(b"\n")
        check_size(len(rest), MAX_TEXT_SIZE)
        for line in complete:
            text = _decoded(line + b"\n", start, name)
            yield text if start else text.removeprefix("\ufeff")
            start += len(line) + 1
    if rest:
        text = _decoded(rest, start, name)
        yield text if start else text.removeprefix("\ufeff")


def _decoded(content: bytes, start: int, name: str) -> str:
    nul = content.find(b"\0")
    try:
        text = content.decode()
        offset = nul
    except UnicodeDecodeError as error:
        offset = error.start if nul < 0 else min(nul, error.start)
    if offset >= 0:
        raise DataError(
            f"{name} is not UTF-8 text: byte {start + offset} is 0x{content[offset]:02x}. Convert the file "
            "(iconv -t UTF-8) or pass another one."
        )
    return text


def _refusal(path: Path, fault: UnreadableError) -> DataError:
    return DataError(f"{path} {fault}. Copy it again, or pass a readable file or directory.")


def _table(lines: Iterable[str], name: str, kind: str) -> Iterator[FileRecord]:
    is_empty = True
    for record in _json_lines(lines, name) if kind == ".jsonl" else _separated(lines, name, kind):
        is_empty = False
        yield record
    if is_empty:
        raise DataError(f"{name} must have at least one row, got none.")


def _json_lines(lines: Iterable[str], name: str) -> Iterator[FileRecord]:
    for line, text in enumerate(lines, start=1):
        if not text.strip():
            continue
        try:
            value = parse_json(text)
        except UnreadableError as fault:
            raise DataError(f"{name}, line {line}: it {fault}. Write one JSON object per line.") from fault
        if not isinstance(value, dict):
            raise DataError(f"{name}, line {line} must be a JSON object, got a {type(value).__name__}.")
        yield FileRecord(value, name, line)


def _separated(lines: Iterable[str], name: str, kind: str) -> Iterator[FileRecord]:
    text = io.StringIO("".join(lines), newline="")  # some files end lines with only a carriage return
    rows = csv.reader(text, delimiter="\t" if kind == ".tsv" else ",", strict=True)
    try:
        header = next(rows, [])
        repeated = sorted({column for column in header if header.count(column) > 1})
        if repeated:
            raise DataError(f"{name}, line 1: column names must be unique, got {repeated[0]!r} twice.")
        for row in filter(None, rows):
            if len(row) != len(header):
                raise DataError(
                    f"{name}, line {rows.line_num} must have {len(header)} columns ({', '.join(header)}), got "
                    f"{len(row)}. Quote cells that contain the separator."
                )
            yield FileRecord(dict(zip(header, row, strict=True)), name, rows.line_num)
    except csv.Error as error:
        raise DataError(f"{name}, line {rows.line_num}: {error}. Check its quotation marks.") from error


def _opened(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except (zipfile.BadZipFile, NotImplementedError, OSError) as error:
        raise DataError(f"{path} is not a complete zip archive ({_reason(error)}). Download it again.") from error


def _decrypt(archive: zipfile.ZipFile, name: str, path: Path, password: str | None, max_size: int) -> bytes:
    is_encrypted = bool(archive.getinfo(name).flag_bits & 0x1)
    if is_encrypted and password is None:
        raise DataError(f"{path} is encrypted. Set --password to the password that its authors publish.")
    try:
        with archive.open(name, pwd=password.encode() if password is not None else None) as file:
            content = file.read(max_size + 1)
    except NotImplementedError as error:  # a subclass of RuntimeError
        raise DataError(f"{name} in {path} has a compression that Python does not support ({error}).") from error
    except RuntimeError as error:
        raise DataError(f"{path} cannot be decrypted with this --password ({error}). Check its spelling.") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
        raise DataError(f"{name} in {path} cannot be read ({_reason(error)}). Download the archive again.") from error
    if len(content) > max_size:
        raise DataError(
            f"{name} in {path} must decompress to at most {format_bytes(max_size)}. Unzip the archive and pass its "
            "tables."
        )
    return content


def _reason(error: Exception) -> str:
    return shortened(str(error)) or type(error).__name__
