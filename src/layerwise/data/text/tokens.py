"""Cut documents into token windows, the inputs of the model, and select the tokens that are scored.

A document is tokenized once and cut into windows that do not overlap. Every window begins with the start token if the
tokenizer has one, so every token is predicted exactly once. Answers are never truncated.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from transformers import PreTrainedTokenizerBase

from layerwise.data.text.corpus import Corpus
from layerwise.data.text.documents import Document, format_excerpt
from layerwise.errors import DataError

Objective = Literal["next_token", "masked_token"]

MASKED_SHARE = 0.15
"""Share of masked tokens, as in BERT (Devlin et al. 2018, section 3.1)."""

CHARACTERS_PER_TOKEN = 16
"""Generous estimate, which limits how much of a long text is tokenized if the number of tokens is limited."""


@dataclass(frozen=True, slots=True)
class Window:
    """Tokens of one document that the model reads together, including special tokens.

    The tokens at positions `scored_from <= t < scored_until` are scored. For a masked language model, only those in
    `masked` are. `index` counts the windows of a document from 0.
    """

    document: str
    task: str
    index: int
    ids: tuple[int, ...]
    scored_from: int
    scored_until: int
    masked: tuple[int, ...] | None = None

    @property
    def scored(self) -> int:
        """Number of scored tokens.

        >>> [Window("d", "text", 0, tuple(range(9)), 1, 8, masked).scored for masked in (None, (2, 5))]
        [7, 2]
        """
        return self.scored_until - self.scored_from if self.masked is None else len(self.masked)

    @property
    def scored_ids(self) -> tuple[int, ...]:
        """Token ids that are scored.

        >>> [Window("d", "text", 0, (7, 8, 9, 2), 1, 3, masked).scored_ids for masked in (None, (2,))]
        [(8, 9), (9,)]
        """
        if self.masked is None:
            return self.ids[self.scored_from : self.scored_until]
        return tuple(self.ids[at] for at in self.masked)

    def beginning(self, scored: int) -> Window:
        """Truncate the window to its first `scored` scored tokens, keeping the special tokens at its end.

        >>> Window("d", "text", 0, (1, 5, 6, 7, 2), 1, 4).beginning(2)
        Window(document='d', task='text', index=0, ids=(1, 5, 6, 2), scored_from=1, scored_until=3, masked=None)
        """
        if self.scored <= scored:
            return self
        until = self.scored_from + scored if self.masked is None else self.masked[scored]
        masked = None if self.masked is None else self.masked[:scored]
        ids = (*self.ids[:until], *self.ids[self.scored_until :])
        return replace(self, ids=ids, scored_until=until, masked=masked)


def cut_windows(
    corpus: Corpus,
    tokenizer: PreTrainedTokenizerBase,
    length: int,
    limit_tokens: int | None = None,
    seed: int = 0,
    *,
    objective: Objective = "next_token",
    positions: int | None = None,
) -> tuple[Window, ...]:
    """Cut a corpus into windows of at most `length` tokens, in the order of its documents.

    Args:
        corpus: The documents.
        tokenizer: Tokenizer of the model.
        length: Maximum tokens of a window.
        limit_tokens: Maximum number of scored tokens in total. If set, windows are drawn from all documents in turn.
        seed: Seed of the drawn windows and masks.
        objective: For `masked_token`, each window includes the tokenizer's special tokens, and each token of its text
            is masked with probability `MASKED_SHARE` (at least one per window).
        positions: Maximum input length of the model.

    Raises:
        DataError: If `length` exceeds `positions` or is too short, a text has fewer than 2 tokens, a document with an
            answer does not fit into a window, or `limit_tokens` is smaller than a window.
    """
    cutter = _Cutter.of(tokenizer, length, objective, seed)
    if positions is not None and length > positions:
        raise DataError(f"--max-length must be at most the {positions} positions of the model, got {length}.")
    if limit_tokens is None:
        cut = tuple(window for document in corpus.documents for window in cutter.cut(document))
    else:
        cut = _sample(corpus, cutter, limit_tokens, seed)
    if too_long := cutter.too_long:
        worst = max(too_long, key=lambda name: too_long[name])
        raise DataError(
            f"{len(too_long)} of {len(corpus.documents)} documents of {corpus.name!r} have an answer and do not fit a "
            f"window of {length} tokens (longest: {worst!r} with {too_long[worst]}). Answers are never truncated: pass "
            f"--max-length {too_long[worst]}, or remove those documents."
        )
    return cut


@dataclass(slots=True)
class _Cutter:
    tokenizer: PreTrainedTokenizerBase
    length: int
    before: tuple[int, ...]
    after: tuple[int, ...]
    masks: int | None
    """Seed of the masked tokens; `None` if all tokens are scored."""
    too_long: dict[str, int]

    @classmethod
    def of(cls, tokenizer: PreTrainedTokenizerBase, length: int, objective: Objective, seed: int) -> _Cutter:
        before, after = find_special_ids(tokenizer, objective)
        smallest = max(2, len(before) + len(after) + 1)
        if length < smallest:
            raise DataError(
                f"--max-length must be at least {smallest} (one scored token and its special tokens), got {length}."
            )
        return cls(tokenizer, length, before, after, seed if objective == "masked_token" else None, {})

    def cut(self, document: Document) -> list[Window]:
        start = document.answer_start
        ((ids, scored),) = encode_pairs(self.tokenizer, [(document.text, start or 0)])
        answer_from = 0 if start is None else next(iter(scored), len(ids))
        if len(ids) < 2:
            raise DataError(
                f"Document {document.id!r} must have at least 2 tokens to be scored, got {len(ids)}. Remove it or pass "
                "a longer text."
            )
        if answer_from == len(ids):
            raise DataError(
                f"The answer of document {document.id!r}, {document.answer!r}, has no token. Pass an answer that the "
                "tokenizer does not drop."
            )
        size = self.length - len(self.before) - len(self.after)
        if document.answer_start is not None and len(ids) > size:
            self.too_long[document.id] = len(ids) + self.length - size
            return []
        pieces = [ids[start : start + size] for start in range(0, len(ids), size)]
        cut = [self._window(document, index, piece, answer_from) for index, piece in enumerate(pieces)]
        return [window for window in cut if window.scored > 0]

    def _window(self, document: Document, index: int, piece: tuple[int, ...], answer_from: int) -> Window:
        ids = (*self.before, *piece, *self.after)
        # A token is scored only if another one precedes it.
        first = max(1, len(self.before) + answer_from)
        window = Window(document.id, document.task, index, ids, first, len(ids) - len(self.after))
        return window if self.masks is None or window.scored < 1 else mask_window(window, self.masks)


def mask_window(window: Window, seed: int) -> Window:
    draw = random.Random(f"{seed}/{window.document}/{window.index}")
    text = range(window.scored_from, window.scored_until)
    positions = [position for position in text if draw.random() < MASKED_SHARE] or [draw.choice(text)]
    return replace(window, masked=tuple(positions))


def find_special_ids(
    tokenizer: PreTrainedTokenizerBase, objective: Objective
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if objective == "next_token":
        start = tokenizer.bos_token_id
        return ((start,) if isinstance(start, int) else ()), ()
    bare = tokenizer("a", add_special_tokens=False)["input_ids"]
    wrapped = tokenizer("a")["input_ids"]
    for start in range(len(wrapped) - len(bare) + 1):
        if wrapped[start : start + len(bare)] == bare:
            return tuple(wrapped[:start]), tuple(wrapped[start + len(bare) :])
    return (), ()


def encode_pairs(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[tuple[str, int]], *, wrapped: bool = False
) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Tokenize pairs (text, start). Returns token ids, and the positions of tokens that end after character `start`.

    If `wrapped`, special tokens are added, but their positions are not returned. Tokenizers without offsets encode the
    text before and after `start` separately, without special tokens.
    """
    if any(start for _, start in texts) and not tokenizer.is_fast:
        parts = [
            [
                tokenizer(part, add_special_tokens=False, verbose=False)["input_ids"] if part else []
                for part in (text[:start], text[start:])
            ]
            for text, start in texts
        ]
        return [((*before, *after), tuple(range(len(before), len(before) + len(after)))) for before, after in parts]
    encoding = tokenizer(
        [text for text, _ in texts],
        add_special_tokens=wrapped,
        return_special_tokens_mask=wrapped,
        return_offsets_mapping=any(start for _, start in texts),
        return_attention_mask=False,
        verbose=False,
    )
    rows = []
    for row, (ids, (_, start)) in enumerate(zip(encoding["input_ids"], texts, strict=True)):
        scored: Sequence[int] = range(len(ids))
        if wrapped:
            scored = [position for position in scored if not encoding["special_tokens_mask"][row][position]]
        if start:
            scored = [position for position in scored if encoding["offset_mapping"][row][position][1] > start]
        rows.append((tuple(ids), tuple(scored)))
    return rows


def _sample(corpus: Corpus, cutter: _Cutter, limit: int, seed: int) -> tuple[Window, ...]:
    draw = random.Random(seed)
    order = {document.id: position for position, document in enumerate(corpus.documents)}
    sampled: list[Window] = []
    total = 0
    for window in _in_rounds(corpus, cutter, limit, draw):
        if total + window.scored > limit:
            if not sampled:
                raise DataError(
                    f"--tokens must be at least {window.scored}, the scored tokens of one window, got {limit}. Raise "
                    "it or pass a smaller --max-length."
                )
            break
        sampled.append(window)
        total += window.scored
    return tuple(sorted(sampled, key=lambda window: (order[window.document], window.index)))


def _in_rounds(corpus: Corpus, cutter: _Cutter, limit: int, draw: random.Random) -> Iterator[Window]:
    # With a masked-token loss far more tokens are read than scored.
    read = limit if cutter.masks is None else math.ceil(limit / MASKED_SHARE)
    share = CHARACTERS_PER_TOKEN * max(cutter.length, read // len(corpus.documents) + 1)
    waiting: list[list[Window]] = []
    for document in draw.sample(corpus.documents, len(corpus.documents)):
        text = format_excerpt(document, share, draw)
        cut = cutter.cut(text)
        if len(cut) > 1 and len(text.text) < len(document.text):
            cut.pop()  # the last window of an excerpt is shorter than the others
        draw.shuffle(cut)
        if cut:
            yield cut.pop()
            waiting.append(cut)
    while waiting := [cut for cut in waiting if cut]:
        for cut in waiting:
            yield cut.pop()
