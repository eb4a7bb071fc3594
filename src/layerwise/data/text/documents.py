"""Documents, the unit of text that is scored and resampled.

Plain text is scored everywhere, a question with an answer only from the answer on. Long texts are cut into chunks of
about 2,000 words that end before a heading, at an empty line or at a line end: at the first kind that occurs often
enough.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from random import Random

from layerwise.errors import DataError

WORDS = 2_000
"""Minimum words of a chunk of a long text."""

MIN_WORDS = 20
"""Minimum words of a chunk of any text."""

MIN_CHUNKS = 50
"""Minimum number of chunks of a text with enough words, so that a tenth of them is several."""

_HEADING = re.compile(r"^(?:(?:= ?)+[^=\s][^\n]*=|\*{3}[^*\n]+\*{3})[ \t]*$", re.MULTILINE)
_EMPTY_LINE = re.compile(r"(?<=\n)(?:[^\S\n]*\n)+")
_LINE_END = re.compile(r"\n")


@dataclass(frozen=True, slots=True)
class Document:
    """One text with a unique `id`; results are averaged by `task`.

    `answer_start` is a character offset: tokens that end after it are scored, those before it are context. `None`
    scores every token but the first. `part_of` is the id of the text that this is a chunk of. Raises `DataError` for
    invalid Unicode, and for an answer that is empty or has no prompt.

    >>> Document("sum-1", "2 + 2 = 4", task="arithmetic", answer_start=8).answer
    '4'
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
                f"Document {self.id!r} has an unpaired surrogate ({error.object[error.start]!r}), which no tokenizer "
                "can read. Repair the text."
            ) from error
        if self.answer_start is not None and not 0 < self.answer_start < len(self.text):
            raise DataError(
                f"answer_start of document {self.id!r} must be between 1 and {len(self.text) - 1}, got "
                f"{self.answer_start}. Omit it to score the entire text."
            )

    @property
    def prompt(self) -> str:
        return "" if self.answer_start is None else self.text[: self.answer_start]

    @property
    def answer(self) -> str:
        return self.text if self.answer_start is None else self.text[self.answer_start :]


def format_excerpt(document: Document, characters: int, draw: Random) -> Document:
    """Draw an excerpt of at most `characters` of a plain text, starting at a line if one is near.

    Short texts and those with an answer are returned unchanged.
    """
    if document.answer_start is not None or len(document.text) <= characters:
        return document
    start = draw.randrange(len(document.text) - characters + 1)
    # The start moves by at most half an excerpt, so texts without line breaks still give long ones.
    line_break = document.text.find("\n", start, start + characters // 2)
    start = start if line_break < 0 else line_break + 1
    return replace(document, text=document.text[start : start + characters])


def split_chunks(document: Document) -> tuple[Document, ...]:
    """Cut a document into chunks that join to its text; short documents and those with an answer are not cut."""
    if document.answer_start is not None:
        return (document,)
    total = len(document.text.split())
    words = max(MIN_WORDS, min(WORDS, total // MIN_CHUNKS))
    texts = list(_stretches(document.text, _bounds(document.text, total // words), words))
    if len(texts) < 2:
        return (document,)
    return tuple(
        replace(document, id=f"{document.id}#{number}", text=text, part_of=document.id)
        for number, text in enumerate(texts)
    )


def join_chunks(documents: Iterable[Document]) -> tuple[Document, ...]:
    result: list[Document] = []
    for original_id, group in groupby(documents, key=lambda each: each.part_of):
        if original_id is None:
            result += group
        else:
            parts = list(group)
            text = "".join(each.text for each in parts)
            result.append(replace(parts[0], id=original_id, text=text, part_of=None))
    return tuple(result)


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
