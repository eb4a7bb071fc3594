"""Texts of the Hugging Face hub, or of a folder in one of the formats of `datasets`, read as a stream.

    hf:NAME                          the split train
    hf:NAME:CONFIGURATION            of one configuration
    hf:NAME:CONFIGURATION:SPLIT      another split; hf:NAME::SPLIT without a configuration
    hf:NAME:CONFIGURATION:SPLIT[:N]  its first N documents
    hf:NAME@REVISION...              as it was at a commit

Rows have a column `text`, and optionally those of a `.jsonl` file (`layerwise.data.text.sources.row_files`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from layerwise.bounded import shortened
from layerwise.data.text.documents import Document
from layerwise.data.text.sources.row_files import FIELDS, row_document
from layerwise.errors import DataError

PREFIX = "hf:"

_SPELLING = re.compile(
    r"hf:(?P<name>[^:@]+)(@(?P<revision>[^:@]+))?(:(?P<configuration>[^:\[]*))?"
    r"(:(?P<split>[^:\[]+)(\[:(?P<limit>[0-9]{1,12})\])?)?"
)


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
        return cls(
            parts["name"], parts["revision"], parts["configuration"] or None, parts["split"] or "train", limit
        )  # fmt: skip

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
        from huggingface_hub import HfApi

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
    """Whether a text is spelt as one of the hub."""
    return str(path).startswith(PREFIX)
