"""Documents as windows of tokens: what a model sees at once, and which of those tokens are scored.

A document is tokenised once and cut into windows that do not overlap. Every window starts with the tokenizer's start
token where there is one, so every token is predicted exactly once. Answers are never cut.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from transformers import PreTrainedTokenizerBase

from layerwise.data.text.corpus import Corpus
from layerwise.data.text.documents import Document, excerpt
from layerwise.errors import DataError

Objective = Literal["next_token", "masked_token"]

MASKED_SHARE = 0.15
"""The share of a window's text that a masked language model fills in, as BERT (Devlin et al. 2018, section 3.1)."""

CHARACTERS_PER_TOKEN = 16
"""A generous bound, used only to bound how much of a long text is tokenised when a token limit is set."""


@dataclass(frozen=True, slots=True)
class Window:
    """Tokens of one document that the model sees together, special tokens included.

    Positions `scored_from <= t < scored_until` are scored, or only those in `masked`, for a masked language model.
    `index` counts the windows of a document from 0.
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
        """How many tokens are scored.

        >>> [Window("d", "text", 0, tuple(range(9)), 1, 8, masked).scored for masked in (None, (2, 5))]
        [7, 2]
        """
        return self.scored_until - self.scored_from if self.masked is None else len(self.masked)

    @property
    def scored_ids(self) -> tuple[int, ...]:
        """The tokens that are scored.

        >>> [Window("d", "text", 0, (7, 8, 9, 2), 1, 3, masked).scored_ids for masked in (None, (2,))]
        [(8, 9), (9,)]
        """
        if self.masked is None:
            return self.ids[self.scored_from : self.scored_until]
        return tuple(self.ids[at] for at in self.masked)

    def beginning(self, scored: int) -> Window:
        """The window up to its first `scored` scored tokens, with the special tokens at its end; itself if shorter.

        >>> Window("d", "text", 0, (1, 5, 6, 7, 2), 1, 4).beginning(2)
        Window(document='d', task='text', index=0, ids=(1, 5, 6, 2), scored_from=1, scored_until=3, masked=None)
        """
        if self.scored <= scored:
            return self
        until = self.scored_from + scored if self.masked is None else self.masked[scored]
        masked = None if self.masked is None else self.masked[:scored]
        ids = (*self.ids[:until], *self.ids[self.scored_until :])
        return replace(self, ids=ids, scored_until=until, masked=masked)


def windows(
    corpus: Corpus,
    tokenizer: PreTrainedTokenizerBase,
    length: int,
    limit_tokens: int | None = None,
    seed: int = 0,
    *,
    objective: Objective = "next_token",
    positions: int | None = None,
) -> tuple[Window, ...]:
    """Cut the corpus into windows of at most `length` tokens, in the order of its documents.

    `limit_tokens` keeps at most that many scored tokens, one window per document in turn, in an order drawn from
    `seed`. `positions` is the longest input of the model. For `masked_token` each window is wrapped as the tokenizer
    wraps a sentence, and its tokens are masked with probability `MASKED_SHARE` (at least one), drawn from `seed` and
    its name.

    Raises `DataError` when `length` exceeds `positions` or leaves no room for text, when a text has fewer than 2
    tokens, when a document with an answer does not fit one window, and when the limit is below the first window.
    """
    cutter = _Cutter.of(tokenizer, length, objective, seed)
    if positions is not None and length > positions:
        raise DataError(
            f"windows of {length} tokens were asked for, but the model has {positions} positions: "
            f"use --max-length {positions} or less"
        )
    if limit_tokens is None:
        cut = tuple(window for document in corpus.documents for window in cutter.cut(document))
    else:
        cut = _sample(corpus, cutter, limit_tokens, seed)
    if too_long := cutter.too_long:
        worst = max(too_long, key=lambda name: too_long[name])
        raise DataError(
            f"{len(too_long)} of {len(corpus.documents)} documents of {corpus.name!r} have an answer and "
            f"do not fit a window of {length} tokens: the longest, {worst!r}, needs {too_long[worst]}. "
            f"Answers are never cut: use --max-length {too_long[worst]}, or remove those documents"
        )
    return cut


@dataclass(slots=True)
class _Cutter:
    tokenizer: PreTrainedTokenizerBase
    length: int
    before: tuple[int, ...]
    after: tuple[int, ...]
    masks: int | None
    """What the masked tokens are drawn from; `None` where all are scored."""
    too_long: dict[str, int]

    @classmethod
    def of(cls, tokenizer: PreTrainedTokenizerBase, length: int, objective: Objective, seed: int) -> _Cutter:
        before, after = wrapping(tokenizer, objective)
        smallest = max(2, len(before) + len(after) + 1)
        if length < smallest:
            raise DataError(
                f"windows of {length} tokens were asked for, but a window needs at least {smallest}: "
                "one to be scored and what stands around it; use a larger --max-length"
            )
        return cls(tokenizer, length, before, after, seed if objective == "masked_token" else None, {})

    def cut(self, document: Document) -> list[Window]:
        start = document.answer_start
        ((ids, scored),) = encoded(self.tokenizer, [(document.text, start or 0)])
        answer_from = 0 if start is None else next(iter(scored), len(ids))
        if len(ids) < 2:
            raise DataError(
                f"document {document.id!r} has {len(ids)} token(s): a text needs at least 2 to be scored; "
                "give a longer text, or remove it"
            )
        if answer_from == len(ids):
            raise DataError(
                f"the answer of document {document.id!r}, {document.answer!r}, has no token of its own; "
                "give an answer that the tokenizer does not drop"
            )
        room = self.length - len(self.before) - len(self.after)
        if document.answer_start is not None and len(ids) > room:
            self.too_long[document.id] = len(ids) + self.length - room
            return []
        pieces = [ids[start : start + room] for start in range(0, len(ids), room)]
        cut = [self._window(document, index, piece, answer_from) for index, piece in enumerate(pieces)]
        return [window for window in cut if window.scored > 0]

    def _window(self, document: Document, index: int, piece: tuple[int, ...], answer_from: int) -> Window:
        ids = (*self.before, *piece, *self.after)
        # A token is scored only where something stands before it.
        first = max(1, len(self.before) + answer_from)
        window = Window(document.id, document.task, index, ids, first, len(ids) - len(self.after))
        return window if self.masks is None or window.scored < 1 else masked(window, self.masks)


def masked(window: Window, seed: int) -> Window:
    draw = random.Random(f"{seed}/{window.document}/{window.index}")
    text = range(window.scored_from, window.scored_until)
    chosen = [position for position in text if draw.random() < MASKED_SHARE] or [draw.choice(text)]
    return replace(window, masked=tuple(chosen))


def wrapping(tokenizer: PreTrainedTokenizerBase, objective: Objective) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if objective == "next_token":
        start = tokenizer.bos_token_id
        return ((start,) if isinstance(start, int) else ()), ()
    bare = tokenizer("a", add_special_tokens=False)["input_ids"]
    wrapped = tokenizer("a")["input_ids"]
    for start in range(len(wrapped) - len(bare) + 1):
        if wrapped[start : start + len(bare)] == bare:
            return tuple(wrapped[:start]), tuple(wrapped[start + len(bare) :])
    return (), ()


def encoded(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[tuple[str, int]], *, wrapped: bool = False
) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Return the token ids of each text, and the positions of those that reach past its start (0 for all).

    `texts` are pairs (text, start). With `wrapped` special tokens are added. Tokenizers without offsets encode the part
    before the start separately, and wrap neither.
    """
    if any(start for _, start in texts) and not tokenizer.is_fast:
        halves = [
            [
                tokenizer(half, add_special_tokens=False, verbose=False)["input_ids"] if half else []
                for half in (text[:start], text[start:])
            ]
            for text, start in texts
        ]
        return [((*before, *after), tuple(range(len(before), len(before) + len(after)))) for before, after in halves]
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
        own: Sequence[int] = range(len(ids))
        if wrapped:
            own = [position for position in own if not encoding["special_tokens_mask"][row][position]]
        if start:
            own = [position for position in own if encoding["offset_mapping"][row][position][1] > start]
        rows.append((tuple(ids), tuple(own)))
    return rows


def _sample(corpus: Corpus, cutter: _Cutter, limit: int, seed: int) -> tuple[Window, ...]:
    draw = random.Random(seed)
    order = {document.id: position for position, document in enumerate(corpus.documents)}
    chosen: list[Window] = []
    total = 0
    for window in _in_rounds(corpus, cutter, limit, draw):
        if total + window.scored > limit:
            if not chosen:
                raise DataError(
                    f"a limit of {limit} tokens is less than one window, which scores {window.scored}: "
                    f"use --tokens {window.scored} or more, or a smaller --max-length"
                )
            break
        chosen.append(window)
        total += window.scored
    return tuple(sorted(chosen, key=lambda window: (order[window.document], window.index)))


def _in_rounds(corpus: Corpus, cutter: _Cutter, limit: int, draw: random.Random) -> Iterator[Window]:
    # Of a text with words to fill in, far more is read than scored.
    read = limit if cutter.masks is None else math.ceil(limit / MASKED_SHARE)
    share = CHARACTERS_PER_TOKEN * max(cutter.length, read // len(corpus.documents) + 1)
    waiting: list[list[Window]] = []
    for document in draw.sample(corpus.documents, len(corpus.documents)):
        text = excerpt(document, share, draw)
        cut = cutter.cut(text)
        if len(cut) > 1 and len(text.text) < len(document.text):
            cut.pop()  # an excerpt ends anywhere, so its last window has less context than the others
        draw.shuffle(cut)
        if cut:
            yield cut.pop()
            waiting.append(cut)
    while waiting := [cut for cut in waiting if cut]:
        for cut in waiting:
            yield cut.pop()
