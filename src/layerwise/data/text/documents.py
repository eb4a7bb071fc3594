"""The document: the unit of text that layerwise scores, resamples and names in its tables.

A document is a text with an identity and a task. Plain text is scored everywhere; a question with an answer
is scored only from the character where the answer begins, so that "was it right?" is asked of the answer
alone. Intervals are bootstrapped over documents, because tokens of one text are not independent observations.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from layerwise.errors import DataError


@dataclass(frozen=True, slots=True)
class Document:
    """One text: `id` is unique in its corpus, `task` names the row of the tables it is averaged in.

    `answer_start` is an offset in characters: tokens that end after it are scored, those before it are
    context. `None` scores every token that has a context, that is all but the first. `part_of` is the id of the text
    that this is a part of, where a long one was cut (`layerwise.data.text.chunks`).

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
        """The characters before the answer; empty when the whole text is scored."""
        return "" if self.answer_start is None else self.text[: self.answer_start]

    @property
    def answer(self) -> str:
        """The characters that are scored: the whole text when no answer is marked."""
        return self.text if self.answer_start is None else self.text[self.answer_start :]


def excerpt(document: Document, characters: int, draw: Random) -> Document:
    """At most `characters` of a plain text, from a position drawn at random, moved to the start of a line if one
    is near.

    A text that is short enough, or that has an answer, is returned as it is.
    """
    if document.answer_start is not None or len(document.text) <= characters:
        return document
    start = draw.randrange(len(document.text) - characters + 1)
    # Half an excerpt is as far as the start moves, so that a text without line breaks still gives a long one.
    line_break = document.text.find("\n", start, start + characters // 2)
    start = start if line_break < 0 else line_break + 1
    return replace(document, text=document.text[start : start + characters])
