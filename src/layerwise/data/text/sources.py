"""Texts in rows: files of JSON lines and of Parquet, and datasets of the Hugging Face hub.

A row is a document, with a `text`, and optionally an `id`, a `task` and an `answer_start`. Files are read as streams:
one of any length takes no more memory than a line.

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
from typing import Any

from huggingface_hub import HfApi

from layerwise.bounded import shortened, shown
from layerwise.data.records import json_rows, parquet_rows
from layerwise.data.text.documents import Document
from layerwise.errors import DataError

PARQUET = ".parquet"
FIELDS = ("text", "id", "task", "answer_start")

PREFIX = "hf:"

_SPELLING = re.compile(
    r"hf:(?P<name>[^:@]+)(@(?P<revision>[^:@]+))?(:(?P<configuration>[^:\[]*))?"
    r"(:(?P<split>[^:\[]+)(\[:(?P<limit>[0-9]{1,12})\])?)?"
)


def row_documents(file: Path, name: str, task: str) -> Iterator[Document]:
    """Yield the documents of a file of rows; ids that it does not give end in the number of the line or row.

    Raises `DataError` for a malformed row, and for a file without rows.
    """
    rows = parquet_rows(file, FIELDS) if file.suffix == PARQUET else json_rows(file)
    for row in rows:
        yield _document(row.columns, row.location, f"{name}:{row.line}", task)


def _document(record: Mapping[str, Any], location: str, fallback_id: str, task: str) -> Document:
    if not isinstance(record.get("text"), str) or not record["text"].strip():
        keys = shortened(", ".join(sorted(record)))
        raise DataError(f'{location}: found the keys {keys}; it should have a non-empty "text"')
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


@dataclass(frozen=True, slots=True)
class HubText:
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
                    yield _document(record, f"{self.name}, row {number}", f"{self.split}:{number}", task)
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
        folder = Path(self.name)
        if not folder.is_dir():
            return []
        return sorted(Path(root) / file for root, _, files in os.walk(folder) for file in files)


def is_hub_text(path: Path | str) -> bool:
    return str(path).startswith(PREFIX)
