"""The text of an answer, piece by piece, as its tokens are made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

REPLACEMENT = "�"
"""What a tokenizer writes for bytes that are no character, or not yet one."""

CONTEXT = (6, 7, 8, 9, 12, 16)
"""Prompt tokens decoded with the first new one, since a tokenizer may drop the space before the first token."""


class TextStream:
    """Turns the new tokens of one answer into text as soon as it can no longer change.

    The pieces of `add` and `finish` are the text of all new tokens, cut before the first stop text, which sets
    `stopped`. An incomplete character at the end is dropped. (`DecodeStream` of tokenizers fails on invalid bytes.)
    """

    def __init__(self, tokenizer: Any, prompt: Sequence[int] = (), stop: Sequence[str] = ()) -> None:
        self._tokenizer = tokenizer
        self._stop = tuple(stop)
        self._tokens = self._context(prompt)
        self._settled = len(self._tokens)
        text = self._text()
        self._before = text.rstrip(REPLACEMENT)
        self._is_torn = text != self._before
        self._held = ""
        self.stopped = False

    def add(self, token: int) -> str:
        self._tokens.append(token)
        text = self._text()
        if text.endswith(REPLACEMENT) or len(text) <= len(self._before):
            return ""  # in the middle of a character, or a token without a text
        return self._released(self._settle(text))

    def finish(self) -> str:
        released = self._released(self._settle(self._text().rstrip(REPLACEMENT)))
        rest = "" if self.stopped else self._held
        self._held = ""
        return released + rest

    def _settle(self, text: str) -> str:
        new = text[len(self._before) :]
        if self._is_torn:
            new = new.lstrip(REPLACEMENT)
            self._is_torn = not new
        self._tokens = self._tokens[self._settled :]
        self._settled = len(self._tokens)
        self._before = self._text()
        return new

    def _released(self, new: str) -> str:
        if self.stopped:
            return ""
        text = self._held + new
        starts = [at for each in self._stop if (at := text.find(each)) >= 0]
        if starts:
            self.stopped, self._held = True, ""
            return text[: min(starts)]
        keep = possible_stop(text, self._stop)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def _context(self, prompt: Sequence[int]) -> list[int]:
        for count in CONTEXT:
            tokens = list(prompt[-count:])
            if not self._decode(tokens).startswith(REPLACEMENT):
                return tokens
        return []

    def _text(self) -> str:
        return self._decode(self._tokens)

    def _decode(self, tokens: Sequence[int]) -> str:
        return str(self._tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False))


def possible_stop(text: str, stops: Sequence[str]) -> int:
    """The number of characters at the end of `text` that may be the beginning of a stop text.

    >>> possible_stop("one, tw", ("two", "wo")), possible_stop("one", ("two",))
    (2, 0)
    """
    longest = max((len(stop) for stop in stops), default=1) - 1
    for count in range(min(longest, len(text)), 0, -1):
        if any(stop.startswith(text[-count:]) for stop in stops):
            return count
    return 0
