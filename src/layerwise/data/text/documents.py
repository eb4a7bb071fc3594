"""The document: the unit of text that is scored, resampled and named in tables.

Plain text is scored everywhere; a question with an answer only from the character where the answer begins. A long text
is cut into chunks of about 2,000 words, which end before a heading, at an empty line or at a line end: at the first of
the three of which the text has as many as it needs. `joined` puts chunks together again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from random import Random

from layerwise.errors import DataError

WORDS = 2_000
"""Words in a chunk of a long text, at least."""

FEWEST = 20
"""Words in a chunk of any text, at least."""

PIECES = 50
"""So many chunks a text is cut into at least, where it has words enough: a tenth of it is then some of them."""

_HEADING = re.compile(r"^(?:(?:= ?)+[^=\s][^\n]*=|\*{3}[^*\n]+\*{3})[ \t]*$", re.MULTILINE)
_EMPTY_LINE = re.compile(r"(?<=\n)(?:[^\S\n]*\n)+")
_LINE_END = re.compile(r"\n")


@dataclass(frozen=True, slots=True)
class Document:
    """One text: `id` is unique in its corpus, `task` names the row of the tables it is averaged in.

    `answer_start` is an offset in characters: tokens that end after it are scored, those before it are
    context. `None` scores every token that has a context, that is all but the first. `part_of` is the id of the text
    that this is a part of, where a long one was cut (`chunks`).

    >>> Document("sum-1", "2 + 2 = 4", task="arithmetic", answer_start=8).answer
    '4'

    Raises `DataError` when a text is not valid Unicode, and when the answer is empty, begins before the text,
    or begins at its first character: an answer without a prompt is plain text.
    """

    id: str
    text: str
    task: str = "text"
    answer_start: int | None = None
    part_of: str | None = None

    def __post_init__(self) -> None:
        try:
            "".join((self.id, self.text, self.task)).encode()
        except UnicodeEncodeError as error:
            raise DataError(
                f"document {self.id!r} holds half a character, a lone surrogate "
                f"({error.object[error.start]!r}): no tokenizer reads that, so repair the text at its source"
            ) from error
        if self.answer_start is not None and not 0 < self.answer_start < len(self.text):
            raise DataError(
                f"document {self.id!r} says that its answer starts at character {self.answer_start}, "
                f"but its text has {len(self.text)}: answer_start must lie between 1 and "
                f"{len(self.text) - 1}, or be left out to score the whole text"
            )

    @property
    def prompt(self) -> str:
        return "" if self.answer_start is None else self.text[: self.answer_start]

    @property
    def answer(self) -> str:
        return self.text if self.answer_start is None else self.text[self.answer_start :]


def excerpt(document: Document, characters: int, draw: Random) -> Document:
    """Return at most `characters` of a plain text from a random position, at the start of a line if one is near.

    A text that is short enough, or that has an answer, is returned as it is.
    """
    if document.answer_start is not None or len(document.text) <= characters:
        return document
    start = draw.randrange(len(document.text) - characters + 1)
    # Half an excerpt is as far as the start moves, so that a text without line breaks still gives a long one.
    line_break = document.text.find("\n", start, start + characters // 2)
    start = start if line_break < 0 else line_break + 1
    return replace(document, text=document.text[start : start + characters])


def chunks(document: Document) -> tuple[Document, ...]:
    """Cut a document into chunks whose texts join to its own; short documents and those with an answer stay whole."""
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
    headings = [match.start() for match in _HEADING.finditer(text)]
    if len(headings) >= needed:
        return headings
    empty = [match.end() for match in _EMPTY_LINE.finditer(text)]
    return empty if len(empty) >= needed else [match.end() for match in _LINE_END.finditer(text)]


def _stretches(text: str, bounds: list[int], words: int) -> Iterator[str]:
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
