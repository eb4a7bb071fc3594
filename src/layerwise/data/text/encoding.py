"""Encode documents as token ids, sentence by sentence, for masked language models.

Empty lines separate paragraphs. So do line ends, unless the text is hard-wrapped. `[PAR]` ends every paragraph. A
period, question mark or exclamation mark ends a sentence if whitespace and a capital or digit follow, except after an
abbreviation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, groupby
from typing import Any

import numpy as np
from datasets import Dataset, are_progress_bars_disabled, disable_progress_bars, enable_progress_bars
from transformers import PreTrainedTokenizerBase

from layerwise.data.text.documents import Document
from layerwise.data.text.vocabulary import PARAGRAPH, TAB
from layerwise.errors import DataError

BATCH = 2**20

Sentences = list[list[int]]

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


@dataclass(frozen=True, slots=True, eq=False)
class Encoded:
    """Encoded documents: rows with `name`, token `ids`, and `sentences`, the lengths of the sentences in tokens.

    `skipped` names documents without text.
    """

    rows: Dataset
    skipped: Sequence[str] = ()

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def tokens(self) -> int:
        return sum(len(chunk.flatten()) for chunk in self.rows.data.column("ids").chunks)


def encode_documents(tokenizer: PreTrainedTokenizerBase, documents: Sequence[Document]) -> Encoded:
    skipped: list[str] = []
    rows = list(encode_rows(tokenizer, documents, skipped))
    return Encoded(Dataset.from_list(rows), skipped)


def encode_rows(
    tokenizer: PreTrainedTokenizerBase,
    documents: Sequence[Document],
    skipped: list[str],
    progress: Callable[[float], None] = lambda share: None,
    *,
    size: int = BATCH,
) -> Iterator[dict[str, Any]]:
    """Yield the rows of `Encoded`, tokenizing about `size` characters at a time.

    Special tokens in a text are encoded as plain text. Chunks of one text become one row. Documents without a token are
    added to `skipped`, and `progress` is called with the completed fraction. Raises `DataError` if no document has a
    token.
    """
    dtype = np.dtype(np.uint16 if len(tokenizer) <= 2**16 else np.int32)
    encoded = chain.from_iterable(_encode(tokenizer, batch) for batch in _batches(documents, progress, size))
    is_empty = True
    for _, parts in groupby(_skip_empty(encoded, skipped), key=lambda part: part[0].part_of or object()):
        read = list(parts)
        document, is_empty = read[0][0], False
        joined = [sentence for _, sentences in read for sentence in sentences]
        yield {
            "name": document.part_of or document.id,
            "ids": np.fromiter(chain.from_iterable(joined), dtype),
            "sentences": np.array([len(sentence) for sentence in joined], np.int32),
        }
    if is_empty:
        raise DataError(f"At least one of the {len(documents)} document(s) must have a sentence, got none.")


@contextmanager
def hide_progress_bars() -> Iterator[None]:
    if are_progress_bars_disabled():
        yield
        return
    disable_progress_bars()
    try:
        yield
    finally:
        enable_progress_bars()


def _skip_empty(
    encoded: Iterator[tuple[Document, Sentences]], skipped: list[str]
) -> Iterator[tuple[Document, Sentences]]:
    for document, sentences in encoded:
        if sentences:
            yield document, sentences
        else:
            skipped.append(document.id)


def _batches(
    documents: Sequence[Document], progress: Callable[[float], None], size: int
) -> Iterator[Sequence[Document]]:
    first, characters = 0, 0
    for number, document in enumerate(documents):
        progress(number / len(documents))
        characters += len(document.text)
        if characters >= size or number == len(documents) - 1:
            yield documents[first : number + 1]
            first, characters = number + 1, 0


def _encode(tokenizer: PreTrainedTokenizerBase, documents: Sequence[Document]) -> Iterator[tuple[Document, Sentences]]:
    vocabulary = tokenizer.get_vocab()
    paragraph, tab = vocabulary.get(PARAGRAPH), vocabulary.get(TAB)
    texts = [[split_sentences(block) for block in split_paragraphs(document.text)] for document in documents]
    split = [
        piece
        for text in texts
        for block in text
        for sentence in block
        for piece in (sentence.split("\t") if tab is not None else [sentence])
    ]
    options = {"add_special_tokens": False, "split_special_tokens": True, "return_attention_mask": False}
    pieces = iter(tokenizer(split, verbose=False, **options)["input_ids"] if split else [])
    for document, text in zip(documents, texts, strict=True):
        read: Sentences = []
        for block in text:
            for sentence in block:
                ids = list(next(pieces))
                if tab is not None:
                    for _ in range(sentence.count("\t")):
                        ids += [tab, *next(pieces)]
                read.append(ids)
            if paragraph is not None and read[-1]:
                read[-1].append(paragraph)
        yield document, [ids for ids in read if ids]


def split_paragraphs(text: str) -> list[str]:
    r"""Split a text into nonempty paragraphs, each on one line, keeping leading tabs.

    >>> split_paragraphs("A line\nand its end.\n\nAnother."), split_paragraphs("One a line.\nTwo.")
    (['A line and its end.', 'Another.'], ['One a line.', 'Two.'])

    >>> split_paragraphs("Yes.\nNo.\nI know who that was at the door.\nWho?\n\nThe end.")
    ['Yes.', 'No.', 'I know who that was at the door.', 'Who?', 'The end.']
    """
    blocks = _EMPTY_LINES.split(text.rstrip().lstrip("\n "))
    if len(blocks) == 1 or not _are_wrapped(blocks):
        blocks = text.split("\n")
    return [joined for joined in (_stripped(_SPACES.sub(" ", block)) for block in blocks) if joined]


def _are_wrapped(blocks: Sequence[str]) -> bool:
    lengths = sorted(len(line) for block in blocks for line in block.split("\n")[:-1])
    return not lengths or lengths[len(lengths) // 2] >= _EVEN * lengths[int(0.95 * len(lengths))]


def split_sentences(paragraph: str) -> list[str]:
    """Split a paragraph into sentences.

    >>> split_sentences("Mr. Fox ran. He hid! Why?")
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
    return text.rstrip().lstrip(" ")


def _is_abbreviation(paragraph: str, start: int, end: re.Match[str]) -> bool:
    if end[0].rstrip() != ".":
        return False
    word = _last_word(paragraph[start : end.start()])
    return word in _ABBREVIATED or (len(word) == 1 and word.isupper() and word != "I")


def _last_word(text: str) -> str:
    # Match backwards, since a forward search would try every position of a long sentence.
    word = _WORD.match(text[::-1])
    return "" if word is None else word[0][::-1]
