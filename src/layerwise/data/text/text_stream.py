"""Streaming detokenization."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

REPLACEMENT = "�"
"""Character that tokenizers return for bytes that are not, or not yet, a complete character."""

CONTEXT = (6, 7, 8, 9, 12, 16)
"""Numbers of prompt tokens to decode together with the first new token, since tokenizers may drop its leading space."""


class TextStream:
    """Converts the tokens of one answer to text while they are generated.

    The strings returned by `add` and `finish` are the text of the answer. It ends before the first stop text, which
    sets `stopped`. An incomplete character at the end is dropped. (`DecodeStream` of tokenizers fails on invalid
    bytes.)
    """

    def __init__(self, tokenizer: Any, prompt: Sequence[int] = (), stop: Sequence[str] = ()) -> None:
        self._tokenizer = tokenizer
        self._stop = tuple(stop)
        self._tokens = self._find_context(prompt)
        self._context_length = len(self._tokens)
        text = self._text()
        self._before = text.rstrip(REPLACEMENT)
        self._is_partial = text != self._before
        self._held = ""
        self.stopped = False

    def add(self, token: int) -> str:
        self._tokens.append(token)
        text = self._text()
        if text.endswith(REPLACEMENT) or len(text) <= len(self._before):
            return ""  # in the middle of a character, or a token without text
        return self._release_text(self._set_missing(text))

    def finish(self) -> str:
        released = self._release_text(self._set_missing(self._text().rstrip(REPLACEMENT)))
        rest = "" if self.stopped else self._held
        self._held = ""
        return released + rest

    def _set_missing(self, text: str) -> str:
        new = text[len(self._before) :]
        if self._is_partial:
            new = new.lstrip(REPLACEMENT)
            self._is_partial = not new
        self._tokens = self._tokens[self._context_length :]
        self._context_length = len(self._tokens)
        self._before = self._text()
        return new

    def _release_text(self, new: str) -> str:
        if self.stopped:
            return ""
        text = self._held + new
        starts = [at for each in self._stop if (at := text.find(each)) >= 0]
        if starts:
            self.stopped, self._held = True, ""
            return text[: min(starts)]
        keep = count_possible_stop(text, self._stop)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def _find_context(self, prompt: Sequence[int]) -> list[int]:
        for count in CONTEXT:
            tokens = list(prompt[-count:])
            if not self._decode(tokens).startswith(REPLACEMENT):
                return tokens
        return []

    def _text(self) -> str:
        return self._decode(self._tokens)

    def _decode(self, tokens: Sequence[int]) -> str:
        return str(self._tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False))


def count_possible_stop(text: str, stops: Sequence[str]) -> int:
    """Count the characters at the end of `text` that may be the beginning of a stop text.

    >>> count_possible_stop("one, tw", ("two", "wo")), count_possible_stop("one", ("two",))
    (2, 0)
    """
    longest = max((len(stop) for stop in stops), default=1) - 1
    for count in range(min(longest, len(text)), 0, -1):
        if any(stop.startswith(text[-count:]) for stop in stops):
            return count
    return 0
