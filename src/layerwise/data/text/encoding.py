"""Documents as token ids: sentences one after another, in one array.

A document becomes paragraphs, a paragraph sentences, a sentence token ids; `[PAR]` ends every paragraph. Parts of one
text that follow each other are one document here (`Document.part_of`), whatever lay between them: the utterances of a
corpus fill segments together.

Empty lines separate paragraphs, and so do line ends, unless the text is hard-wrapped: there the lines between two empty
ones are joined. The splitter of sentences is a rule of thumb for English: a full stop, question or exclamation mark
before white space and a capital or a digit ends one, unless the word before it is an abbreviation or an initial.

A text is encoded a batch of documents at a time, so that a large one never lies in memory twice.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from layerwise.data.text.documents import Document
from layerwise.data.text.vocabulary import PARAGRAPH, TAB
from layerwise.data.text.word_table import TextEncoder
from layerwise.errors import DataError

Ids = NDArray[np.int32] | NDArray[np.uint16]
Offsets = NDArray[np.int64]
Ranges = tuple[Offsets, Offsets, Offsets]
"""Starts, ends and documents of segments, each (segments,)."""

BATCH = 2**23
"""Characters that are encoded together, unless one document has more."""

_EMPTY_LINES = re.compile(r"\n(?:[^\S\n]*\n)+")
_SPACES = re.compile(r"[^\S\t]+")
_END = re.compile(r"""[.!?]+["')\]]*\s+(?=["'(\[]*[A-Z0-9])""")
_WORD = re.compile(r"[\w.]*")
_ABBREVIATIONS = """
    Mr Mrs Ms Dr Prof St Rev Capt Col Gen Lieut Hon Messrs Jr Sr No vs cf e.g i.e etc viz Fig fig Vol vol
    Jan Feb Aug Sept Oct Nov Dec
"""
_ABBREVIATED = frozenset(_ABBREVIATIONS.split())
_EVEN = 0.75
"""In a hard-wrapped text, how long at least half of the lines are that another follows, as a share of a long one."""


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


def encode(
    tokenizer: PreTrainedTokenizerBase,
    documents: Sequence[Document],
    progress: Callable[[float], None] = lambda share: None,
    write: Callable[[NDArray[np.int32]], object] | None = None,
    *,
    size: int = BATCH,
) -> Encoded:
    """The documents as sentences of token ids; what only looks like a special token is text.

    Parts of one text that follow each other become one document, named after it. `progress` receives the share of the
    documents that is done. About `size` characters are encoded together; where `write` is given, it receives the ids of
    each batch, which are then not kept. Documents without a token are skipped and named. Raises `DataError` when none
    is left.
    """
    encoder = TextEncoder(tokenizer)
    ids: list[NDArray[np.int32]] = []
    keep = ids.append if write is None else write
    lengths, counts = [], []
    for batch in _batches(documents, progress, size):
        tokens, of_sentences, of_documents = _encoded(tokenizer, encoder, batch)
        keep(tokens)
        lengths.append(of_sentences)
        counts.append(of_documents)
    held = np.concatenate(counts) if counts else np.zeros(0, dtype=np.int64)
    read = [document for document, count in zip(documents, held.tolist(), strict=True) if count]
    if not read:
        raise DataError(f"none of the {len(documents)} document(s) holds a word: give at least one text with sentences")
    names = [each.part_of or each.id for each in read]
    first = [n for n, each in enumerate(read) if each.part_of is None or not n or names[n - 1] != names[n]]
    return Encoded(
        np.concatenate(ids) if ids else np.zeros(0, dtype=np.int32),
        offsets(np.concatenate(lengths)),
        offsets(held[held > 0])[[*first, len(read)]],
        tuple(names[number] for number in first),
        tuple(each.id for each, count in zip(documents, held.tolist(), strict=True) if not count),
    )


def _batches(
    documents: Sequence[Document], progress: Callable[[float], None], size: int
) -> Iterator[Sequence[Document]]:
    """The documents, about `size` characters at a time."""
    first, characters = 0, 0
    for number, document in enumerate(documents):
        progress(number / len(documents))
        characters += len(document.text)
        if characters >= size or number == len(documents) - 1:
            yield documents[first : number + 1]
            first, characters = number + 1, 0


def offsets(lengths: NDArray[np.integer]) -> Offsets:
    """Where each of some ranges begins that follow each other, and where the last one ends, (ranges + 1,)."""
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64)


def _encoded(
    tokenizer: PreTrainedTokenizerBase, encoder: TextEncoder, documents: Sequence[Document]
) -> tuple[NDArray[np.int32], Offsets, Offsets]:
    """The ids of the documents one after another, how many each sentence has, and how many sentences each document."""
    vocabulary = tokenizer.get_vocab()
    paragraph, tab = vocabulary.get(PARAGRAPH), vocabulary.get(TAB)  # not every tokenizer has them
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
    held = offsets((lengths > 0).astype(np.int64))[offsets(np.array(counts, dtype=np.int64))]
    return ids, lengths[lengths > 0], np.diff(held)


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


def paragraphs(text: str) -> list[str]:
    """The paragraphs of a text, each on one line, without those that hold nothing; tabs that begin a line stay.

    >>> paragraphs("A line\\nand its end.\\n\\nAnother."), paragraphs("One a line.\\nTwo.")
    (['A line and its end.', 'Another.'], ['One a line.', 'Two.'])

    >>> paragraphs("Yes.\\nNo.\\nI know who that was at the door.\\nWho?\\n\\nThe end.")
    ['Yes.', 'No.', 'I know who that was at the door.', 'Who?', 'The end.']
    """
    blocks = _EMPTY_LINES.split(text.rstrip().lstrip("\n "))
    if len(blocks) == 1 or not _are_wrapped(blocks):
        blocks = text.split("\n")
    return [joined for joined in (_stripped(_SPACES.sub(" ", block)) for block in blocks) if joined]


def _are_wrapped(blocks: Sequence[str]) -> bool:
    """Whether the lines of the blocks end where they were full: those that another follows are nearly as long."""
    lengths = sorted(len(line) for block in blocks for line in block.split("\n")[:-1])
    return not lengths or lengths[len(lengths) // 2] >= _EVEN * lengths[int(0.95 * len(lengths))]


def sentences(paragraph: str) -> list[str]:
    """The sentences of a paragraph; joined by the white space between them they are the paragraph.

    >>> sentences("Mr. Fox ran. He hid! Why?")
    ['Mr. Fox ran.', 'He hid!', 'Why?']
    """
    pieces = []
    start = 0
    for end in _END.finditer(paragraph):
        if not _is_abbreviation(paragraph, start, end):
            pieces.append(_stripped(paragraph[start : end.end()]))
            start = end.end()
    return [*pieces, _stripped(paragraph[start:])]


def _stripped(text: str) -> str:
    """The text without white space around it; tabs before it stay, unless it is nothing but white space."""
    return text.rstrip().lstrip(" ")


def _is_abbreviation(paragraph: str, start: int, end: re.Match[str]) -> bool:
    if end[0].rstrip() != ".":
        return False
    word = _last_word(paragraph[start : end.start()])
    return word in _ABBREVIATED or (len(word) == 1 and word.isupper() and word != "I")


def _last_word(text: str) -> str:
    """What the text ends in that is made of letters, digits, `_` and full stops."""
    # Read from the end, since a search from the beginning tries every position of a long sentence.
    word = _WORD.match(text[::-1])
    assert word is not None
    return word[0][::-1]
