"""Segments: what a masked language model reads at once, of one document and never of two.

A document becomes paragraphs, a paragraph sentences, a sentence token ids; `[PAR]` ends every paragraph. Segments are
cut as LTG-BERT cuts them: sentences are put into a segment until it is full; the one that overflows is read there as
far as it fits, and begins the next segment whole. So every segment but the last of its document is full, and what is
read twice is the beginning of a sentence. A sentence that is longer than a segment continues in the next segment
(LTG-BERT drops the rest of it). `[CLS]` and `[SEP]` are put around a segment when it is read, so a segment of
length 128 holds at most 126 ids.

The ids of all documents lie in one array, and a segment is a range of it: cutting the same text to 128 and to 512
tokens costs two lists of numbers.

Parts of one text that follow each other are one document here (`Document.part_of`), whatever lay between them: the
utterances of a corpus fill segments together.

Empty lines separate paragraphs, and so do line ends, unless the text is hard-wrapped: there the lines between two empty
ones are joined. The splitter of sentences is a rule of thumb for English: a full stop, question or exclamation mark
before white space and a capital or a digit ends one, unless the word before it is an abbreviation or an initial.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from layerwise.data.splits import SPLITS, digest
from layerwise.data.text.documents import Document
from layerwise.data.text.wordpiece import PARAGRAPH, TAB
from layerwise.errors import DataError

AROUND = 2
"""The tokens around every segment: one that begins it, one that ends it."""

_EMPTY_LINES = re.compile(r"\n(?:[^\S\n]*\n)+")
_SPACES = re.compile(r"[^\S\t]+")
_END = re.compile(r"""[.!?]+["')\]]*\s+(?=["'(\[]*[A-Z0-9])""")
_LAST_WORD = re.compile(r"[\w.]*\Z")
_ABBREVIATIONS = """
    Mr Mrs Ms Dr Prof St Rev Capt Col Gen Lieut Hon Messrs Jr Sr No vs cf e.g i.e etc viz Fig fig Vol vol
    Jan Feb Aug Sept Oct Nov Dec
"""
_BATCH = 4_096
_EVEN = 0.75
"""In a hard-wrapped text, how long at least half of the lines are that another follows, as a share of a long one."""


@dataclass(frozen=True, slots=True, eq=False)
class Encoded:
    """Documents as token ids.

    `ids` (tokens,) holds all of them one after another; sentence s is `ids[sentences[s]:sentences[s + 1]]`, document d
    the sentences from `documents[d]` to `documents[d + 1]`; `names` are the documents' ids. `skipped` names documents
    in which there was nothing to read.
    """

    ids: NDArray[np.int32]
    sentences: NDArray[np.int64]
    documents: NDArray[np.int64]
    names: tuple[str, ...]
    skipped: tuple[str, ...] = ()


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

    def ids(self, number: int) -> NDArray[np.int32]:
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
        return self.train.skipped + self.validation.skipped + self.test.skipped


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


def encode(
    tokenizer: PreTrainedTokenizerBase,
    documents: Sequence[Document],
    progress: Callable[[float], None] = lambda share: None,
) -> Encoded:
    """The documents as sentences of token ids; what only looks like a special token is text.

    Parts of one text that follow each other become one document, named after it. `progress` receives the share of the
    documents that is done. Documents without a token are skipped and named. Raises `DataError` when none is left.
    """
    paragraph, tab = (_special(tokenizer, text) for text in (PARAGRAPH, TAB))
    pieces: list[NDArray[np.int32]] = []
    lengths: list[int] = []
    counts: list[int] = []
    names: list[str] = []
    skipped: list[str] = []
    for number, document in enumerate(documents):
        progress(number / len(documents))
        marked = [each for block in paragraphs(document.text) for each in _marked(sentences(block))]
        encoded = _encode(tokenizer, [text for text, _ in marked], tab)
        rows = [
            np.asarray(ids if paragraph is None or not last else [*ids, paragraph], dtype=np.int32)
            for ids, (_, last) in zip(encoded, marked, strict=True)
            if ids
        ]
        if not rows:
            skipped.append(document.id)
            continue
        pieces += rows
        lengths += map(len, rows)
        if document.part_of is not None and names and names[-1] == document.part_of:
            counts[-1] += len(rows)
        else:
            counts.append(len(rows))
            names.append(document.part_of or document.id)
    if not names:
        raise DataError(f"none of the {len(skipped)} document(s) holds a word: give at least one text with sentences")
    return Encoded(np.concatenate(pieces), _offsets(lengths), _offsets(counts), tuple(names), tuple(skipped))


def cut(text: Encoded, length: int) -> Segments:
    """The documents in segments of `length` tokens, in order; the last of each may be shorter.

    Raises `DataError` for a length below 3.
    """
    room = length - AROUND
    if room < 1:
        raise DataError(f"segments of {length} tokens have no room beside [CLS] and [SEP]: use a length of 3 or more")
    ranges = [
        (start, end, owner)
        for owner, (first, last) in enumerate(pairwise(text.documents.tolist()))
        for start, end in _ranges(text.sentences[first : last + 1].tolist(), room)
    ]
    starts, ends, owners = np.array(ranges, dtype=np.int64).reshape(-1, 3).T
    return Segments(text, length, starts, ends, owners)


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
    word = _LAST_WORD.search(paragraph[start : end.start()])
    assert word is not None
    return word[0] in _ABBREVIATIONS.split() or (len(word[0]) == 1 and word[0].isupper() and word[0] != "I")


def _marked(sentences: list[str]) -> Iterator[tuple[str, bool]]:
    """Each sentence, and whether it is the last of its paragraph."""
    return ((text, number == len(sentences)) for number, text in enumerate(sentences, start=1))


def _special(tokenizer: PreTrainedTokenizerBase, text: str) -> int | None:
    """The id of a token that not every tokenizer has."""
    token_id: int | None = tokenizer.get_vocab().get(text)
    return token_id


def _encode(tokenizer: PreTrainedTokenizerBase, texts: list[str], tab: int | None) -> list[list[int]]:
    """The ids of each text; where the tokenizer has a token for it, a tab is that."""
    parts = [text.split("\t") if tab is not None else [text] for text in texts]
    flat = [part for split in parts for part in split]
    ids: list[list[int]] = []
    for start in range(0, len(flat), _BATCH):
        batch = flat[start : start + _BATCH]
        ids += tokenizer(batch, add_special_tokens=False, split_special_tokens=True, verbose=False)["input_ids"]
    each = iter(ids)
    return [_joined([next(each) for _ in split], tab) for split in parts]


def _joined(rows: list[list[int]], tab: int | None) -> list[int]:
    ids = list(rows[0])
    for row in rows[1:]:
        ids += row if tab is None else [tab, *row]
    return ids


def _offsets(lengths: Sequence[int]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64)


def _ranges(bounds: list[int], room: int) -> Iterator[tuple[int, int]]:
    """Segments of one document whose sentences begin and end at `bounds`."""
    start = bounds[0]
    while bounds[-1] - start > room:
        end = start + room
        yield start, end
        after = bisect_right(bounds, end)
        # The sentence that overflowed begins anew where it fits a segment.
        start = bounds[after - 1] if bounds[after] - bounds[after - 1] <= room else end
    if bounds[-1] > start:
        yield start, bounds[-1]
