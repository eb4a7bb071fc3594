"""Passages: a text of which everything, or everything after a context, is to be scored; and its tokens.

What is scored is decided by the tokenizer's own word for what it added (`special_tokens_mask`), never by position: not
every tokenizer puts a token before and after a text, and taking the first and the last for special ones then drops two
real tokens. For a masked model a passage is wrapped as the tokenizer wraps a text. For a causal one it follows the
start token where the tokenizer has one; where it has none, nothing stands before the first token, and it is context.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from transformers import PreTrainedTokenizerBase

from layerwise.data.text.tokens import Objective
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
    """Each passage in tokens. A token that reaches past the context's last character is scored.

    Raises `DataError` for a passage of which no token is left to score.
    """
    if any(passage.start for passage in passages) and not tokenizer.is_fast:
        pieces = [_pieces_apart(tokenizer, passage) for passage in passages]
    else:
        pieces = _pieces(tokenizer, passages, wrapped=objective == "masked_token")
    start = tokenizer.bos_token_id if objective == "next_token" else None
    before = (start,) if isinstance(start, int) else ()
    lines = []
    for passage, (ids, scored) in zip(passages, pieces, strict=True):
        moved = tuple(position + len(before) for position in scored)
        line = EncodedPassage(
            (*before, *ids), moved if objective == "masked_token" else tuple(each for each in moved if each)
        )
        if not line.scored:
            raise DataError(
                f"the text {passage.text!r} leaves no token to score with this tokenizer"
                + ("" if before or objective == "masked_token" else ", which has no start token")
                + "; leave it out, or give a longer one"
            )
        lines.append(line)
    return tuple(lines)


def _pieces(
    tokenizer: PreTrainedTokenizerBase, passages: Sequence[Passage], *, wrapped: bool
) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Ids and scored positions of each text."""
    contexts = any(passage.start for passage in passages)
    encoding = tokenizer(
        [passage.text for passage in passages], add_special_tokens=wrapped, return_special_tokens_mask=True,
        return_offsets_mapping=contexts, return_attention_mask=False, verbose=False,
    )  # fmt: skip
    rows_and_starts = []
    for row, passage in enumerate(passages):
        special = encoding["special_tokens_mask"][row]
        own = [position for position, added in enumerate(special) if not added]
        if passage.start:
            ends = encoding["offset_mapping"][row]
            own = [position for position in own if ends[position][1] > passage.start]
        rows_and_starts.append((tuple(encoding["input_ids"][row]), tuple(own)))
    return rows_and_starts


def _pieces_apart(tokenizer: PreTrainedTokenizerBase, passage: Passage) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The same from a tokenizer without offsets: context and rest are encoded apart, and nothing is wrapped."""
    context, rest = passage.text[: passage.start], passage.text[passage.start :]
    before = tokenizer(context, add_special_tokens=False, verbose=False)["input_ids"] if context else []
    after = tokenizer(rest, add_special_tokens=False, verbose=False)["input_ids"]
    return (*before, *after), tuple(range(len(before), len(before) + len(after)))


def words(text: str) -> list[tuple[int, int]]:
    """The positions of the words of a text: runs of letters, digits and apostrophes within them.

    >>> [text[a:b] for text in ["It doesn't."] for a, b in words(text)]
    ['It', "doesn't"]
    """
    return [match.span() for match in _WORD.finditer(text)]
