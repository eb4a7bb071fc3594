"""Documents are the units of text that are scored and resampled.

Plain text is scored entirely; of a question with an answer, only the answer is scored. Long texts are cut into chunks
of about 2,000 words. Chunks end before headings, or at empty lines if there are too few headings, or else at line ends.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from random import Random

from layerwise.errors import DataError

WORDS = 2_000
"""Minimum number of words in a chunk of a long text."""

MIN_WORDS = 20
"""Minimum number of words in a chunk of any text."""

MIN_CHUNKS = 50
"""A text with enough words is cut into at least this many chunks, so that a tenth of the text has several chunks."""

_HEADING = re.compile(r"^(?:(?:= ?)+[^=\s][^\n]*=|\*{3}[^*\n]+\*{3})[ \t]*$", re.MULTILINE)
_EMPTY_LINE = re.compile(r"(?<=\n)(?:[^\S\n]*\n)+")
_LINE_END = re.compile(r"\n")


@dataclass(frozen=True, slots=True)
class Document:
    """One text with a unique `id`. Results are averaged over documents with the same `task`.

    If `answer_start`, a character offset, is set, tokens that end after it are scored and those before it are context.
    Otherwise, every token but the first is scored. A chunk has the id of its text in `part_of`. Raises `DataError` for
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
    """Draw an excerpt of at most `characters` characters, which starts at the beginning of a line if one is near.

    Short documents and documents with an answer are returned unchanged.
    """
    if document.answer_start is not None or len(document.text) <= characters:
        return document
    start = draw.randrange(len(document.text) - characters + 1)
    # The start moves by at most half an excerpt, so texts without line breaks still give long ones.
    line_break = document.text.find("\n", start, start + characters // 2)
    start = start if line_break < 0 else line_break + 1
    return replace(document, text=document.text[start : start + characters])


def split_chunks(document: Document) -> tuple[Document, ...]:
    """Cut a document into chunks. Short documents and documents with an answer are not cut."""
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


def split_at_blank_lines(text: str) -> list[str]:
    r"""Split a text at blank lines; a paragraph of one word stays with the next one, since one token has no loss.

    >>> split_at_blank_lines("One.\n\n \nTwo,\nof two lines.\n\nThree paragraphs.\n\nEnd")
    ['One.\n\nTwo,\nof two lines.', 'Three paragraphs.\n\nEnd']
    """
    joined: list[str] = []
    for part in filter(None, map(str.strip, re.split(r"\n\s*\n", text))):
        if joined and len(joined[-1].split()) < 2:
            joined[-1] += f"\n\n{part}"
        else:
            joined.append(part)
    if len(joined) > 1 and len(joined[-1].split()) < 2:
        joined[-2:] = ["\n\n".join(joined[-2:])]
    return joined


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
