"""Records: the rows of local tables as mappings, each with its file and line.

Reads JSON lines (`.jsonl`) and tables with a header (`.csv`, `.tsv`), each also as `.gz`, or several in a zip archive,
which is read in memory only (EWoK is locked against crawlers). Errors name file, line and column.
"""

from __future__ import annotations

import csv
import io
import os
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from layerwise.bounded import (
    TEXT_SIZE,
    Unreadable,
    decoded,
    parse_json,
    read_bytes,
    shortened,
    shown,
    size_in_words,
    unpacked,
    unpacked_bound,
)
from layerwise.errors import DataError, near_matches

KINDS = (".jsonl", ".csv", ".tsv")
"""The endings that are read; each may be followed by `.gz`."""


@dataclass(frozen=True, slots=True)
class FileRecord:
    """One row: its columns, and where it stands (`line` counts from 1; a file that is no text has rows for lines)."""

    columns: Mapping[str, Any]
    file: str
    line: int
    unit: Literal["line", "row"] = "line"

    def cell(self, column: str) -> Any:
        """What `column` holds. Raises `DataError`, with file, line and column, where there is none."""
        if column not in self.columns:
            raise DataError(f"{self.location}: there is no column {column!r}; {near_matches(column, self.columns)}")
        return self.columns[column]

    def text(self, column: str) -> str:
        """The text in `column`. Raises `DataError`, with file, line and column, where there is none."""
        value = self.cell(column)
        if not isinstance(value, str) or not value.strip():
            raise DataError(f"{self.location}: column {column!r} holds {shown(value)}; it must hold text")
        if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
            raise DataError(
                f"{self.location}: column {column!r} holds half a character, a lone surrogate: no tokenizer reads "
                "that, so repair the text at its source"
            )
        return value

    @property
    def location(self) -> str:
        return f"{self.file}, {self.unit} {self.line}"


def kind_of(name: str) -> str | None:
    """The ending of a table's name without `.gz`, or `None` for what is no table.

    >>> kind_of("blimp.jsonl.gz"), kind_of("notes.txt")
    ('.jsonl', None)
    """
    ending = Path(name.lower().removesuffix(".gz")).suffix
    return ending if ending in KINDS else None


def read_records(path: Path, kind: str | None = None) -> tuple[FileRecord, ...]:
    """Read every row of the table at `path`; `kind` (one of `KINDS`) is its format if its name does not say.

    Raises `DataError` for a file of another kind, that cannot be read, or without rows.
    """
    kind = kind or kind_of(path.name)
    if kind is None:
        known = ", ".join(KINDS)
        raise DataError(f"{path} is no table that can be read; give a file that ends in one of {known} (or .gz of it)")
    try:
        content = read_bytes(path, TEXT_SIZE)
        text = decoded(unpacked(content) if path.name.lower().endswith(".gz") else content)
    except Unreadable as fault:
        raise DataError(f"{path} {fault}; check the file, fetch it again, or convert it to UTF-8 text") from fault
    return parse_records(io.StringIO(text, newline=""), str(path), kind)


def read_tables(path: Path, password: str | None = None) -> Iterator[tuple[str, tuple[FileRecord, ...]]]:
    """Return name and rows of the table at `path`, or of each table in the archive, opened with `password`.

    Raises `DataError` as `read_records`, and for an archive that is damaged, locked, without tables, or far too large.
    """
    if not zipfile.is_zipfile(path):
        yield path.name, read_records(path)
        return
    left = unpacked_bound(path.stat().st_size)
    with _opened(path) as archive:
        names = sorted(name for name in archive.namelist() if kind_of(name) and not name.endswith(".gz"))
        if not names:
            raise DataError(f"{path} holds no .jsonl, .csv or .tsv file; give an archive of minimal pairs")
        for name in names:
            content = _unlocked(archive, name, path, password, left)
            left -= len(content)
            try:
                lines = io.StringIO(decoded(content), newline="")
            except Unreadable as fault:
                raise DataError(f"{name} in {path} {fault}; fetch the archive again") from fault
            yield PurePosixPath(name).name, parse_records(lines, f"{path}:{name}", kind_of(name) or "")


def below(folder: Path) -> Iterator[Path]:
    """List every file and folder below `folder` by name, links followed once; unreadable folders are skipped."""
    searched: set[str] = set()
    for root, folders, files in os.walk(folder, followlinks=True):
        real = os.path.realpath(root)
        if real in searched:
            folders.clear()
            continue
        searched.add(real)
        folders.sort()
        yield from (Path(root, name) for name in sorted((*folders, *files)))


def parse_records(lines: Iterable[str], name: str, kind: str) -> tuple[FileRecord, ...]:
    """The rows in `lines`, the text of a table called `name` of `kind` (one of `KINDS`); see `read_records`."""
    records = tuple(_json_lines(lines, name) if kind == ".jsonl" else _table(lines, name, kind))
    if not records:
        raise DataError(f"{name} holds no row; give a file with at least one")
    return records


def _json_lines(lines: Iterable[str], name: str) -> Iterator[FileRecord]:
    for line, text in enumerate(lines, start=1):
        if not text.strip():
            continue
        try:
            value = parse_json(text)
        except Unreadable as fault:
            raise DataError(f"{name}, line {line}: it {fault}; write one object a line") from fault
        if not isinstance(value, dict):
            raise DataError(f"{name}, line {line}: a {type(value).__name__}, not an object; write one object a line")
        yield FileRecord(value, name, line)


def _table(lines: Iterable[str], name: str, kind: str) -> Iterator[FileRecord]:
    rows = csv.reader(lines, delimiter="\t" if kind == ".tsv" else ",", strict=True)
    try:
        header = next(rows, None)
        if header is None:
            return
        _check_header(header, name)
        for row in rows:
            if not row:
                continue
            if len(row) != len(header):
                raise DataError(
                    f"{name}, line {rows.line_num}: {len(row)} columns where the header has {len(header)} "
                    f"({', '.join(header)}); quote cells that hold the separator"
                )
            if any("\0" in cell for cell in row):
                raise DataError(f"{name}, line {rows.line_num}: a cell holds a null byte; write it as text")
            yield FileRecord(dict(zip(header, row, strict=True)), name, rows.line_num)
    except csv.Error as error:
        raise DataError(f"{name}, line {rows.line_num}: {error}; check its quotation marks") from error


def _check_header(header: Sequence[str], name: str) -> None:
    repeated = sorted({column for column in header if header.count(column) > 1})
    if repeated:
        raise DataError(f"{name}, line 1: the column {repeated[0]!r} is there twice; name each column once")


def _opened(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except (zipfile.BadZipFile, NotImplementedError, OSError) as error:
        raise DataError(f"{path} is not a whole zip archive ({_reason(error)}); fetch it again") from error


def _unlocked(archive: zipfile.ZipFile, name: str, path: Path, password: str | None, most: int) -> bytes:
    locked = bool(archive.getinfo(name).flag_bits & 0x1)
    if locked and password is None:
        raise DataError(f"{path} is locked: give the word that its authors published with it, --password WORD")
    try:
        with archive.open(name, pwd=password.encode() if password is not None else None) as file:
            content = file.read(most + 1)
    except NotImplementedError as error:  # a kind of RuntimeError
        raise DataError(f"{name} in {path} is packed in a way that Python does not read ({error})") from error
    except RuntimeError as error:
        raise DataError(f"{path} does not open with this --password ({error}); check its spelling") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
        raise DataError(f"{name} in {path} cannot be read ({_reason(error)}); fetch the archive again") from error
    if len(content) > most:
        raise DataError(
            f"{name} in {path} unpacks to more than {size_in_words(most)}, and the archive is far smaller: unpack it "
            "yourself, and give its tables"
        )
    return content


def _reason(error: Exception) -> str:
    return shortened(str(error)) or type(error).__name__
