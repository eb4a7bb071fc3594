"""Passages: a text of which everything, or everything after a context, is to be scored; and its tokens.

What is scored is decided by the tokenizer's `special_tokens_mask`, never by position. For a masked model a passage is
wrapped as the tokenizer wraps a text. For a causal one it follows the start token; without one, its first token is
context.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from transformers import PreTrainedTokenizerBase

from layerwise.data.text.tokens import Objective, encoded, wrapping
from layerwise.errors import DataError

_WORD = re.compile(r"\w+(?:['’]\w+)*")


@dataclass(frozen=True, slots=True)
class Passage:
    """A text; characters before `start` are context, which is read and not scored."""

    text: str
    start: int = 0


@dataclass(frozen=True, slots=True)
class EncodedPassage:
    """A passage in tokens: the ids that the model sees, and the positions among them that are scored."""

    ids: tuple[int, ...]
    scored: tuple[int, ...]


def encode(
    tokenizer: PreTrainedTokenizerBase, passages: Sequence[Passage], objective: Objective
) -> tuple[EncodedPassage, ...]:
    """Encode passages; a token that reaches past the context is scored. Raises `DataError` if none of a passage is."""
    fills_in = objective == "masked_token"
    texts = [(passage.text, passage.start) for passage in passages]
    pieces = encoded(tokenizer, texts, wrapped=fills_in)
    before = () if fills_in else wrapping(tokenizer, objective)[0]
    lines = []
    for passage, (ids, scored) in zip(passages, pieces, strict=True):
        moved = tuple(position + len(before) for position in scored)
        line = EncodedPassage((*before, *ids), moved if fills_in else tuple(each for each in moved if each))
        if not line.scored:
            raise DataError(
                f"the text {passage.text!r} leaves no token to score with this tokenizer"
                + ("" if before or fills_in else ", which has no start token")
                + "; leave it out, or give a longer one"
            )
        lines.append(line)
    return tuple(lines)


def words(text: str) -> list[tuple[int, int]]:
    """The positions of the words of a text: runs of letters, digits and apostrophes within them.

    >>> [text[a:b] for text in ["It doesn't."] for a, b in words(text)]
    ['It', "doesn't"]
    """
    return [match.span() for match in _WORD.finditer(text)]
