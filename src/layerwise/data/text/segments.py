"""Segments for masked language models. A segment has tokens of one document only."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow
from datasets import Dataset
from numpy.typing import NDArray

from layerwise.data.splits import SPLITS, digest
from layerwise.data.text.documents import Document
from layerwise.data.text.encoding import Encoded, hide_progress_bars
from layerwise.errors import DataError

AROUND = 2


@dataclass(frozen=True, slots=True, eq=False)
class Segments:
    """Segments of `text`. Each row has the token `ids` of a segment and the number of its `document`.

    `length` is the maximum length, including `[CLS]` and `[SEP]`.
    """

    text: Encoded
    length: int
    rows: Dataset

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def owners(self) -> NDArray[np.int32]:
        return np.asarray(self.rows.data.column("document").to_numpy())

    def ids(self, numbers: Sequence[int]) -> list[NDArray[Any]]:
        """Return the token ids of the segments with these numbers, each of shape (at most length - 2,)."""
        return [row.values.to_numpy() for row in self.rows[numbers]["ids"]]


@dataclass(frozen=True, slots=True, eq=False)
class PretrainingText:
    """A text divided into disjoint splits. `digest` covers all documents and their splits."""

    name: str
    digest: str
    train: Encoded
    validation: Encoded
    test: Encoded

    @property
    def skipped(self) -> tuple[str, ...]:
        return (*self.train.skipped, *self.validation.skipped, *self.test.skipped)


def hash_parts(parts: Mapping[str, Sequence[Document]]) -> str:
    return digest((split, each.id, each.text.encode()) for split in SPLITS for each in parts[split])


def cut_segments(text: Encoded, length: int) -> Segments:
    """Cut documents into segments of at most `length` tokens, or read them from the token cache.

    As in LTG-BERT, a sentence that does not fit is truncated at the end of a segment and repeated at the start of the
    next. A sentence longer than a segment continues in the next one instead. Raises `DataError` for a length below 3.
    """
    size = length - AROUND
    if size < 1:
        raise DataError(f"The segment length must be at least 3 ([CLS], a token and [SEP]), got {length}.")
    documents = text.rows.with_format("arrow")
    options = {"remove_columns": documents.column_names, "new_fingerprint": f"cut-{size}"}
    with hide_progress_bars():
        try:
            rows = documents.map(partial(_cut_table, size=size), with_indices=True, batched=True, **options)
        except (pyarrow.ArrowException, OSError):  # a damaged file or a read-only cache
            options["keep_in_memory"] = True
            options["load_from_cache_file"] = False
            rows = documents.map(partial(_cut_table, size=size), with_indices=True, batched=True, **options)
    return Segments(text, length, rows)


def _cut_table(table: pyarrow.Table, numbers: Sequence[int], size: int) -> pyarrow.Table:
    ids, owners = [], []
    for number, document, sentences in zip(numbers, table["ids"], table["sentences"], strict=True):
        tokens = document.values.to_numpy()
        for start, end in _segments([0, *np.cumsum(sentences.values.to_numpy()).tolist()], size):
            ids.append(tokens[start:end])
            owners.append(number)
    columns = [pyarrow.array(ids, table["ids"].type), pyarrow.array(owners, pyarrow.int32())]
    return pyarrow.table(columns, ["ids", "document"])


def _segments(bounds: Sequence[int], size: int) -> Iterator[tuple[int, int]]:
    start, last = bounds[0], bounds[-1]
    position = 0
    while last - start > size:
        end = start + size
        yield start, end
        # Every sentence has a token, so at most this many bounds are in between.
        position = bisect_right(bounds, end, position, min(len(bounds), position + size + 2))
        before, after = bounds[position - 1], bounds[position]
        # The sentence that overflowed begins the next segment if it fits.
        start = before if after - before <= size else end
        position -= 1
    if last > start:
        yield start, last
