"""Read documents from JSON lines, Parquet files, and datasets of the Hugging Face hub.

hf:NAME                          the train split of a hub dataset, or of a directory in a format of `datasets`
hf:NAME:CONFIGURATION            one configuration
hf:NAME:CONFIGURATION:SPLIT      another split; hf:NAME::SPLIT without a configuration
hf:NAME:CONFIGURATION:SPLIT[:N]  its first N documents
hf:NAME@REVISION...              at a commit
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
from layerwise.data.records import read_json_rows, read_parquet_rows
from layerwise.data.text.documents import Document
from layerwise.errors import DataError

PARQUET = ".parquet"
FIELDS = ("text", "id", "task", "answer_start")

PREFIX = "hf:"

_SPELLING = re.compile(
    r"hf:(?P<name>[^:@]+)(@(?P<revision>[^:@]+))?(:(?P<configuration>[^:\[]*))?"
    r"(:(?P<split>[^:\[]+)(\[:(?P<limit>[0-9]{1,12})\])?)?"
)


def read_row_documents(file: Path, name: str, task: str) -> Iterator[Document]:
    """Yield the documents of a file whose rows have a `text`, and optionally an `id`, a `task` and an `answer_start`.

    If a row has no id, its id ends in the line or row number. Raises `DataError` for a malformed row, or if there are
    no rows.
    """
    rows = read_parquet_rows(file, FIELDS) if file.suffix == PARQUET else read_json_rows(file)
    for row in rows:
        yield _document(row.columns, row.location, f"{name}:{row.line}", task)


def _document(record: Mapping[str, Any], location: str, fallback_id: str, task: str) -> Document:
    if not isinstance(record.get("text"), str) or not record["text"].strip():
        keys = shortened(", ".join(sorted(record)))
        raise DataError(f'{location}: the row must have a nonempty "text", got the keys {keys}.')
    start = record.get("answer_start")
    if start is not None and (not isinstance(start, int) or isinstance(start, bool)):
        raise DataError(f"{location}: answer_start must be a number of characters, got {shown(start)}.")
    labels: dict[str, Any] = {"id": record.get("id", fallback_id), "task": record.get("task", task)}
    for key, value in labels.items():
        if type(value) not in (str, int):
            raise DataError(f"{location}: {key} must be text or an integer, got {shown(value)}.")
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
        """Parse a dataset name `hf:...`, written as in the module docstring. Raises `DataError` if it is malformed."""
        match = _SPELLING.fullmatch(text)
        if match is None:
            raise DataError(
                "A hub dataset must be hf:NAME, hf:NAME:CONFIGURATION or hf:NAME:CONFIGURATION:SPLIT, with [:N] after "
                f"the split for its first N documents, got {shortened(text)!r}."
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
                raise DataError(f"{self.name} must have a column named text, got {shortened(', '.join(columns))}.")
            for number, row in enumerate(islice(rows, self.limit), start=1):
                record = {name: row[name] for name in FIELDS if row.get(name) is not None}
                if record.get("text", "").strip():  # many datasets have empty lines
                    yield _document(record, f"{self.name}, row {number}", f"{self.split}:{number}", task)
        except DataError:
            raise
        except Exception as error:  # hub, network, disk and formats raise different errors
            reason = str(error).split("\n")[0] or type(error).__name__
            raise DataError(
                f"The dataset {self.name} cannot be read ({shortened(reason, 200)}). Pass a hub dataset of texts, such "
                "as hf:wikitext:wikitext-2-raw-v1, or a directory in a format of `datasets`."
            ) from error

    def version(self) -> str | None:
        """Return the current commit, or `None` for a directory."""
        if Path(self.name).is_dir():
            return None
        try:
            return str(HfApi().dataset_info(self.name, revision=self.revision).sha)
        except Exception as error:  # network, hub and permissions raise different errors
            reason = shortened(str(error).split("\n")[0] or type(error).__name__, 200)
            raise DataError(
                f"Cannot find the current version of {self.name} on the hub ({reason}). Pass hf:NAME for a hub "
                "dataset, or hf:FOLDER for a local one."
            ) from error

    def files(self) -> list[Path]:
        folder = Path(self.name)
        if not folder.is_dir():
            return []
        return sorted(Path(root) / file for root, _, files in os.walk(folder) for file in files)


def is_hub_text(path: Path | str) -> bool:
    return str(path).startswith(PREFIX)
