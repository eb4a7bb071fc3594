"""Chunks: a long text as documents of like length, which end where the text lets them.

A corpus file holds hours of speech or many articles. As one document it could only be held out whole, and its intervals
would have nothing to resample; as a document a line, the two halves of a conversation would be strangers. A chunk is a
stretch of it: about 2,000 words, of a short text a fiftieth.

A chunk ends before a heading, at an empty line or at a line end: at the first of the three of which the text has at
least as many as it needs. Headings are those of Wikipedia extracts and of book collections, alone in their line:

    = = = Title = = =
    *** Title ***

Chunks of one text know of each other (`Document.part_of`), and `joined` puts together those that are left of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby, pairwise

from layerwise.data.text.documents import Document

WORDS = 2_000
"""Words in a chunk of a long text, at least."""

FEWEST = 20
"""Words in a chunk of any text, at least."""

PIECES = 50
"""So many chunks a text is cut into at least, where it has words enough: a tenth of it is then some of them."""

_HEADING = re.compile(r"^(?:(?:= ?)+[^=\s][^\n]*=|\*{3}[^*\n]+\*{3})[ \t]*$", re.MULTILINE)
_EMPTY_LINE = re.compile(r"(?<=\n)(?:[^\S\n]*\n)+")
_LINE_END = re.compile(r"\n")


def chunks(document: Document) -> tuple[Document, ...]:
    """The document in chunks, whose texts joined are its own; itself where it is too short to be cut.

    A question with its answer is never cut.
    """
    if document.answer_start is not None:
        return (document,)
    total = len(document.text.split())
    words = max(FEWEST, min(WORDS, total // PIECES))
    texts = list(_stretches(document.text, _bounds(document.text, total // words), words))
    if len(texts) < 2:
        return (document,)
    return tuple(
        replace(document, id=f"{document.id}#{number}", text=text, part_of=document.id)
        for number, text in enumerate(texts)
    )


def joined(documents: Iterable[Document]) -> tuple[Document, ...]:
    """The documents, parts of one text that follow each other as one, named after it."""
    whole_documents: list[Document] = []
    for whole, group in groupby(documents, key=lambda each: each.part_of):
        if whole is None:
            whole_documents += group
        else:
            parts = list(group)
            text = "".join(each.text for each in parts)
            whole_documents.append(replace(parts[0], id=whole, text=text, part_of=None))
    return tuple(whole_documents)


def _bounds(text: str, needed: int) -> list[int]:
    """Where a chunk may end: the bounds of the first kind of which there are as many as are needed."""
    headings = [match.start() for match in _HEADING.finditer(text)]
    if len(headings) >= needed:
        return headings
    empty = [match.end() for match in _EMPTY_LINE.finditer(text)]
    return empty if len(empty) >= needed else [match.end() for match in _LINE_END.finditer(text)]


def _stretches(text: str, bounds: list[int], words: int) -> Iterator[str]:
    """The text cut at the first of the bounds where a stretch has so many words; one with fewer ends the last."""
    start, count = 0, 0
    ready: str | None = None
    for begin, end in pairwise([0, *(bound for bound in bounds if bound), len(text)]):
        count += len(text[begin:end].split())
        if count >= words:
            if ready is not None:
                yield ready
            ready, start, count = text[start:end], end, 0
    rest = text[start:]
    if ready is not None or rest:
        yield (ready or "") + rest
