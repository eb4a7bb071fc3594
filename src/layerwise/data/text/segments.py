"""Segments: what a masked language model reads at once, of one document and never of two.

Segments of documents in sentences (`layerwise.data.text.encoding`) are cut as LTG-BERT cuts them: sentences are put
into a segment until it is full; the one that overflows is read there as far as it fits, and begins the next segment
whole. So every segment but the last of its document is full, and what is read twice is the beginning of a sentence. A
sentence that is longer than a segment continues in the next segment (LTG-BERT drops the rest of it). `[CLS]` and
`[SEP]` are put around a segment when it is read, so a segment of length 128 holds at most 126 ids.

The ids of all documents lie in one array, and a segment is a range of it: cutting the same text to 128 and to 512
tokens costs two lists of numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from layerwise.data.splits import SPLITS, digest
from layerwise.data.text.documents import Document
from layerwise.data.text.encoding import Encoded, Ids, encode
from layerwise.errors import DataError

AROUND = 2
"""The tokens around every segment: one that begins it, one that ends it."""


@dataclass(frozen=True, slots=True, eq=False)
class Segments:
    """Ranges of the ids of `text`: segment s is `text.ids[starts[s]:ends[s]]`, of document `owners[s]`.

    `length` counts the tokens of the longest segment with the two around it.
    """

    text: Encoded
    length: int
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    owners: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.starts)

    def __reduce__(self) -> tuple[Any, ...]:
        """A process that is handed segments cuts the text itself, or maps what was cut."""
        return cut, (self.text, self.length)

    def ids(self, number: int) -> Ids:
        """The token ids of one segment, shape (at most length - 2,)."""
        return self.text.ids[self.starts[number] : self.ends[number]]


@dataclass(frozen=True, slots=True, eq=False)
class PretrainingText:
    """A text as three sets of documents that share none, under a name; `digest` is one of every document and its set.

    What is learned is learned from `train`; `validation` is looked at on the way, `test` is reported.
    """

    name: str
    digest: str
    train: Encoded
    validation: Encoded
    test: Encoded

    @property
    def skipped(self) -> tuple[str, ...]:
        """The documents in which there was nothing to read."""
        return (*self.train.skipped, *self.validation.skipped, *self.test.skipped)


def pretraining_text(
    tokenizer: PreTrainedTokenizerBase,
    name: str,
    parts: Mapping[str, Sequence[Document]],
    progress: Callable[[str, float], None] | None = None,
) -> PretrainingText:
    """The documents of the parts `train`, `validation` and `test`, encoded; see `encode` for what it refuses.

    `progress` receives the part and the share of its documents that is encoded.
    """
    watched = progress or (lambda part, share: None)
    encoded = {split: encode(tokenizer, parts[split], partial(watched, f"encoding {split}")) for split in SPLITS}
    return PretrainingText(name, digest_of(parts), encoded["train"], encoded["validation"], encoded["test"])


def digest_of(parts: Mapping[str, Sequence[Document]]) -> str:
    """The digest of a `PretrainingText` of these documents: known before anything is encoded."""
    return digest((split, each.id, each.text.encode()) for split in SPLITS for each in parts[split])


def cut(text: Encoded, length: int) -> Segments:
    """The documents in segments of `length` tokens, in order; the last of each may be shorter.

    Raises `DataError` for a length below 3.
    """
    room = length - AROUND
    if room < 1:
        raise DataError(f"segments of {length} tokens have no room beside [CLS] and [SEP]: use a length of 3 or more")
    return Segments(text, length, *text.ranges(room))
