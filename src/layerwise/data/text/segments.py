"""Segments: what a masked language model reads at once, of one document and never of two.

They are cut as LTG-BERT cuts them: sentences fill a segment; the one that overflows is read there as far as it fits,
and begins the next segment whole. A sentence that is longer than a segment continues in the next one (LTG-BERT drops
the rest). A segment of length 128 holds at most 126 ids, since `[CLS]` and `[SEP]` are put around it.
"""

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
"""The tokens around every segment: one that begins it, one that ends it."""


@dataclass(frozen=True, slots=True, eq=False)
class Segments:
    """Segments of the documents of `text`: a row has token `ids` and the number of its `document`.

    `length` is that of the longest, with `[CLS]` and `[SEP]`.
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
        """The token ids of some segments, each of shape (at most length - 2,)."""
        return [row.values.to_numpy() for row in self.rows[numbers]["ids"]]


@dataclass(frozen=True, slots=True, eq=False)
class PretrainingText:
    """A text as disjoint document sets `train`, `validation` and `test`; `digest` covers every document and its set."""

    name: str
    digest: str
    train: Encoded
    validation: Encoded
    test: Encoded

    @property
    def skipped(self) -> tuple[str, ...]:
        return (*self.train.skipped, *self.validation.skipped, *self.test.skipped)


def digest_of(parts: Mapping[str, Sequence[Document]]) -> str:
    return digest((split, each.id, each.text.encode()) for split in SPLITS for each in parts[split])


def cut(text: Encoded, length: int) -> Segments:
    """Cut documents into segments of `length` tokens, in order, or map those in the token cache.

    The last of each document may be shorter. Raises `DataError` for a length below 3.
    """
    room = length - AROUND
    if room < 1:
        raise DataError(f"segments of {length} tokens have no room beside [CLS] and [SEP]: use a length of 3 or more")
    documents = text.rows.with_format("arrow")
    options = {"remove_columns": documents.column_names, "new_fingerprint": f"cut-{room}"}
    with hide_progress_bars():
        try:
            rows = documents.map(partial(_cut, room=room), with_indices=True, batched=True, **options)
        except (pyarrow.ArrowException, OSError):  # a damaged file, or a cache that this user may only read
            options["keep_in_memory"] = True
            options["load_from_cache_file"] = False
            rows = documents.map(partial(_cut, room=room), with_indices=True, batched=True, **options)
    return Segments(text, length, rows)


def _cut(table: pyarrow.Table, numbers: Sequence[int], room: int) -> pyarrow.Table:
    ids, owners = [], []
    for number, document, sentences in zip(numbers, table["ids"], table["sentences"], strict=True):
        tokens = document.values.to_numpy()
        for start, end in _segments([0, *np.cumsum(sentences.values.to_numpy()).tolist()], room):
            ids.append(tokens[start:end])
            owners.append(number)
    columns = [pyarrow.array(ids, table["ids"].type), pyarrow.array(owners, pyarrow.int32())]
    return pyarrow.table(columns, ["ids", "document"])


def _segments(bounds: Sequence[int], room: int) -> Iterator[tuple[int, int]]:
    start, last = bounds[0], bounds[-1]
    position = 0
    while last - start > room:
        end = start + room
        yield start, end
        # Every sentence has a token, so at most so many bounds lie between.
        position = bisect_right(bounds, end, position, min(len(bounds), position + room + 2))
        before, after = bounds[position - 1], bounds[position]
        # The sentence that overflowed is read again where it fits a segment.
        start = before if after - before <= room else end
        position -= 1
    if last > start:
        yield start, last
