"""Documents as token ids: sentences one after another, in one array.

A document becomes paragraphs, a paragraph sentences, a sentence token ids; `[PAR]` ends every paragraph. Parts of one
text that follow each other are one document here (`Document.part_of`), whatever lay between them: the utterances of a
corpus fill segments together.

A text is encoded a batch of documents at a time (`encoded_batches`), so that a large one never lies in memory twice.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from layerwise.data.text.documents import Document
from layerwise.data.text.sentences import paragraphs, sentences
from layerwise.data.text.word_table import TextEncoder
from layerwise.data.text.wordpiece import PARAGRAPH, TAB
from layerwise.errors import DataError

Ids = NDArray[np.int32] | NDArray[np.uint16]
Offsets = NDArray[np.int64]
Ranges = tuple[Offsets, Offsets, Offsets]
"""Starts, ends and documents of segments, each (segments,)."""

BATCH = 2**23
"""Characters that are encoded together, unless one document has more."""


@dataclass(frozen=True, slots=True, eq=False)
class Encoded:
    """Documents as token ids.

    `ids` (tokens,) holds all of them one after another; sentence s is `ids[sentences[s]:sentences[s + 1]]`, document d
    the sentences from `documents[d]` to `documents[d + 1]`; `names` are the documents' ids. `skipped` names documents
    in which there was nothing to read.
    """

    ids: Ids
    sentences: Offsets
    documents: Offsets
    names: Sequence[str]
    skipped: Sequence[str] = ()

    def ranges(self, room: int) -> Ranges:
        """Segments of at most `room` ids, as `layerwise.data.text.segments` describes them."""
        starts, ends, owners = [], [], []
        for owner, (first, last) in enumerate(pairwise(self.documents.tolist())):
            for start, end in _segments(self.sentences[first : last + 1], room):
                starts.append(start)
                ends.append(end)
                owners.append(owner)
        arrays = (np.array(each, dtype=np.int64) for each in (starts, ends, owners))
        return next(arrays), next(arrays), next(arrays)


@dataclass(frozen=True, slots=True, eq=False)
class EncodedBatch:
    """Documents in a row as token ids: `sentences` (sentences,) counts the tokens of each, `documents` (documents,) the
    sentences of each.

    `names` are the documents' ids; those in `parts` (documents,) go on with the one before them, if it has their name.
    `read` counts the documents that were read, those in `skipped` too, which held nothing.
    """

    ids: NDArray[np.int32]
    sentences: Offsets
    documents: Offsets
    names: tuple[str, ...]
    parts: NDArray[np.bool_]
    skipped: tuple[str, ...]
    read: int


def encode(
    tokenizer: PreTrainedTokenizerBase,
    documents: Sequence[Document],
    progress: Callable[[float], None] = lambda share: None,
) -> Encoded:
    """The documents as sentences of token ids; what only looks like a special token is text.

    Parts of one text that follow each other become one document, named after it. `progress` receives the share of the
    documents that is done. Documents without a token are skipped and named. Raises `DataError` when none is left.
    """
    batches = list(encoded_batches(tokenizer, documents, progress))
    names = [name for batch in batches for name in batch.names]
    skipped = tuple(name for batch in batches for name in batch.skipped)
    refuse_nothing(len(names), len(skipped))
    ids, lengths, counts, parts = (
        np.concatenate([getattr(batch, field) for batch in batches])
        for field in ("ids", "sentences", "documents", "parts")
    )
    kept = whole_documents(names, parts)
    edges = offsets(counts)
    return Encoded(
        ids, offsets(lengths), edges[[*kept, len(names)]], tuple(names[number] for number in kept), skipped
    )  # fmt: skip


def encoded_batches(
    tokenizer: PreTrainedTokenizerBase,
    documents: Sequence[Document],
    progress: Callable[[float], None] = lambda share: None,
    *,
    first: int = 0,
    size: int = BATCH,
) -> Iterator[EncodedBatch]:
    """The documents from number `first` on, encoded in batches of about `size` characters.

    Which documents are a batch depends on where it begins, and what is encoded does not.
    """
    encoder = TextEncoder(tokenizer)
    waiting: list[Document] = []
    characters = 0
    for number, document in enumerate(documents[first:], start=first):
        progress(number / len(documents))
        waiting.append(document)
        characters += len(document.text)
        if characters >= size:
            yield _encoded_batch(tokenizer, encoder, waiting)
            waiting, characters = [], 0
    if waiting:
        yield _encoded_batch(tokenizer, encoder, waiting)


def refuse_nothing(documents: int, skipped: int) -> None:
    """Raise `DataError` where no document holds a word."""
    if not documents:
        raise DataError(f"none of the {skipped} document(s) holds a word: give at least one text with sentences")


def whole_documents(names: Sequence[str], parts: Iterable[bool]) -> list[int]:
    """The numbers of the documents that do not go on with the one before them.

    >>> whole_documents(["a", "a", "b", "b"], [True, True, False, False])
    [0, 2, 3]
    """
    return [
        number for number, part in enumerate(parts) if not (part and number and names[number - 1] == names[number])
    ]  # fmt: skip


def offsets(lengths: NDArray[np.integer]) -> Offsets:
    """Where each of some ranges begins that follow each other, and where the last one ends, (ranges + 1,)."""
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64)


def _encoded_batch(
    tokenizer: PreTrainedTokenizerBase, encoder: TextEncoder, documents: Sequence[Document]
) -> EncodedBatch:
    paragraph, tab = (_special(tokenizer, text) for text in (PARAGRAPH, TAB))
    texts: list[str] = []
    last: list[int] = []  # the sentence that ends each paragraph
    counts: list[int] = []
    for document in documents:
        before = len(texts)
        for block in paragraphs(document.text):
            texts += sentences(block)
            last.append(len(texts) - 1)
        counts.append(len(texts) - before)
    ids, lengths = _sentence_ids(encoder, texts, np.array(last, dtype=np.int64), paragraph, tab)
    edges = offsets((lengths > 0).astype(np.int64))
    held = np.diff(edges[offsets(np.array(counts, dtype=np.int64))])
    kept = [(each, count) for each, count in zip(documents, held.tolist(), strict=True) if count]
    return EncodedBatch(
        ids,
        lengths[lengths > 0],
        np.array([count for _, count in kept], dtype=np.int64),
        tuple(each.part_of or each.id for each, _ in kept),
        np.array([each.part_of is not None for each, _ in kept], dtype=np.bool_),
        tuple(each.id for each, count in zip(documents, held.tolist(), strict=True) if not count),
        len(documents),
    )


def _special(tokenizer: PreTrainedTokenizerBase, text: str) -> int | None:
    """The id of a token that not every tokenizer has."""
    token_id: int | None = tokenizer.get_vocab().get(text)
    return token_id


def _sentence_ids(
    encoder: TextEncoder, texts: Sequence[str], last: Offsets, paragraph: int | None, tab: int | None
) -> tuple[NDArray[np.int32], Offsets]:
    """The ids of the sentences one after another, and how many each has.

    Where the tokenizer has a token for it, a tab is that, and one stands behind each sentence that is the `last` of its
    paragraph, if there is something to read in it.
    """
    pieces = [text.split("\t") if tab is not None else [text] for text in texts]
    ids, piece_lengths = encoder([piece for split in pieces for piece in split])
    ends = offsets(piece_lengths)
    first = offsets(np.array([len(split) for split in pieces], dtype=np.int64))  # the first piece of each sentence
    tabs = np.setdiff1d(np.arange(first[-1]), first[:-1])
    lengths = np.diff(ends[first]) + np.diff(first) - 1
    marks = last[lengths[last] > 0] if paragraph is not None else last[:0]
    lengths[marks] += 1
    # Both kinds in the order of the text: the end of a sentence stands before the first piece of the next.
    where = np.concatenate([ends[tabs], ends[first[marks + 1]]])
    order = np.argsort(np.concatenate([tabs, first[marks + 1] - 0.5]), kind="stable")
    tokens = np.repeat(np.array([tab or 0, paragraph or 0], dtype=np.int32), [len(tabs), len(marks)])
    return np.insert(ids, where[order], tokens[order]), lengths


def _segments(bounds: Offsets, room: int) -> Iterator[tuple[int, int]]:
    """Segments of one document whose sentences begin and end at `bounds`."""
    start, last = int(bounds[0]), int(bounds[-1])
    position = 0
    while last - start > room:
        end = start + room
        yield start, end
        # Every sentence has a token, so at most so many bounds lie between.
        position = bisect_right(bounds, end, position, min(len(bounds), position + room + 2))
        before, after = int(bounds[position - 1]), int(bounds[position])
        # The sentence that overflowed begins anew where it fits a segment.
        start = before if after - before <= room else end
        position -= 1
    if last > start:
        yield start, last
