"""Training, validation and test splits of texts for language models, optionally packed.

Packing fills rows of equal length with several windows, so that there is almost no padding. Each window, the longest
first, goes to the row with the best fit (Ding et al. 2024, "Fewer Truncations Improve Language Modeling"). Windows of
the emptiest rows, except those with an answer, are split to fill others up to `FILL`. Positions begin at 0 in each
text, which keeps attention inside it, and the first token of a text is not predicted.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from layerwise.data.batches import build_labeled_row, build_row
from layerwise.data.splits import Example, Examples, Splits, digest
from layerwise.data.text.corpus import Corpus
from layerwise.data.text.division import Division
from layerwise.data.text.documents import join_chunks
from layerwise.data.text.tokenizer import find_mask_id
from layerwise.data.text.tokens import Objective, Window, cut_windows, mask_window
from layerwise.errors import DataError

FILL = 0.98
"""Target fraction of positions that are not padding."""

_MIN_TOKENS = 8

Row = list[Window]


class PackedWindows(Examples):
    """Rows of windows. Labels are the scored ids, which `...ForCausalLM` models shift themselves."""

    def __init__(self, rows: Sequence[Sequence[Window]]) -> None:
        self.rows = tuple(map(tuple, rows))
        self.windows = tuple(window for row in self.rows for window in row)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Example:
        """Return `input_ids`, `labels` and `position_ids`, each int64 (seq,)."""
        # The first token of a window is never scored, so no text is predicted from another.
        rows = [
            (*build_labeled_row(window), torch.arange(len(window.ids), device="cpu")) for window in self.rows[index]
        ]
        ids, labels, positions = map(torch.cat, zip(*rows, strict=True))
        return {"input_ids": ids, "labels": labels, "position_ids": positions}


def pack_windows(windows: Sequence[Window], length: int, seed: int = 0, start: int | None = None) -> PackedWindows:
    """Pack windows into rows of at most `length` tokens.

    `start` is the start token of all windows, if there is one. If a window is split, the start token is repeated.
    Windows of equal length are packed in an order drawn from `seed`.

    >>> rows = pack_windows([Window(f"d{n}", "text", 0, (1,) * n, 1, n) for n in (6, 5, 3, 2)], 8).rows
    >>> [[len(window.ids) for window in row] for row in rows]
    [[6, 2], [5, 3]]
    """
    order = Random(f"{seed}/packing").sample(range(len(windows)), len(windows))
    order.sort(key=lambda number: -len(windows[number].ids))
    rows = _best_fit([windows[number] for number in order], length)
    return PackedWindows(_filled(rows, length, start))


def _best_fit(windows: Sequence[Window], length: int) -> list[Row]:
    rows: list[Row] = []
    gaps: list[int] = []  # distinct free sizes, ascending
    numbers: dict[int, list[int]] = {}  # row numbers by free size
    for window in windows:
        size = len(window.ids)
        rank = bisect_left(gaps, size)
        if rank == len(gaps):
            number, gap = len(rows), length
            rows.append([])
        else:
            gap = gaps[rank]
            number = numbers[gap].pop()
            if not numbers[gap]:
                del numbers[gap], gaps[rank]
        rows[number].append(window)
        gap -= size
        if gap:
            if gap not in numbers:
                numbers[gap] = []
                insort(gaps, gap)
            numbers[gap].append(number)
    return rows


def _filled(rows: list[Row], length: int, start: int | None) -> list[Row]:
    tokens = sum(len(window.ids) for row in rows for window in row)
    rows = sorted(rows, key=lambda row: -sum(len(window.ids) for window in row))
    while len(rows) > 1 and tokens < FILL * length * len(rows):
        spread = _spread(rows[:-1], rows[-1], length, start)
        if spread is None:
            break
        rows = spread
    return rows


def _spread(rows: list[Row], emptiest: Row, length: int, start: int | None) -> list[Row] | None:
    gaps = [(-(length - sum(len(window.ids) for window in row)), number) for number, row in enumerate(rows)]
    heapq.heapify(gaps)
    added: dict[int, Row] = {}
    waiting = list(emptiest)
    while waiting:
        window = waiting.pop()
        if not gaps:
            return None
        negative_gap, number = heapq.heappop(gaps)
        gap = -negative_gap
        if len(window.ids) > gap:
            first, rest = _split(window, gap, start)
            if first is None or rest is None:
                return None
            waiting.append(rest)
            window = first
        added.setdefault(number, []).append(window)
        if gap > len(window.ids):
            heapq.heappush(gaps, (len(window.ids) - gap, number))
    return [[*row, *added.get(number, ())] for number, row in enumerate(rows)]


def _split(window: Window, size: int, start: int | None) -> tuple[Window | None, Window | None]:
    has_start = start is not None and window.ids[0] == start
    is_plain = window.scored_from == 1 and window.scored_until == len(window.ids) and window.masked is None
    size = min(size, len(window.ids) - _MIN_TOKENS)
    if not is_plain or size < _MIN_TOKENS:
        return None, None
    first = replace(window, ids=window.ids[:size], scored_until=size)
    rest = (*window.ids[:1], *window.ids[size:]) if has_start else window.ids[size:]
    return first, replace(window, ids=rest, scored_until=len(rest))


class TokenWindows(Examples):
    """Token windows. Labels are the scored ids, which `...ForCausalLM` models shift themselves."""

    def __init__(self, windows: Sequence[Window]) -> None:
        self.windows = tuple(windows)

    def __len__(self) -> int:
        return len(self.windows)

    def __getitem__(self, index: int) -> Example:
        ids, labels = build_labeled_row(self.windows[index])
        return {"input_ids": ids, "labels": labels}


class MaskedWindows(Examples):
    """Token windows in which `mask` replaces the masked tokens, which are the labels.

    If `redrawn`, torch's generator draws new masks on every access.
    """

    def __init__(self, windows: Sequence[Window], mask: int, *, redrawn: bool) -> None:
        self.windows = tuple(windows)
        self.mask = mask
        self.redrawn = redrawn

    def __len__(self) -> int:
        return len(self.windows)

    def __getitem__(self, index: int) -> Example:
        window = self.windows[index]
        if self.redrawn:
            window = mask_window(window, int(torch.randint(2**31, (), device="cpu")))
        ids, labels = build_row(window, self.mask)
        return {"input_ids": ids, "labels": labels}


def build_text_splits(
    tokenizer: PreTrainedTokenizerBase,
    text: Division,
    *,
    length: int,
    positions: int | None = None,
    objective: Objective = "next_token",
) -> Splits:
    """Join the chunks of each document, and cut the documents of each split into windows of at most `length` tokens.

    Raises `DataError` for a masked-token objective, and the errors of `layerwise.data.text.tokens.cut_windows`.
    """
    if objective != "next_token":
        raise DataError(
            "The model must predict the next token, got one that predicts masked tokens. Pass a ...ForCausalLM model."
        )
    return _cut(tokenizer, text, lambda _, cut: TokenWindows(cut), length=length, positions=positions)


def build_masked_splits(
    tokenizer: PreTrainedTokenizerBase,
    text: Division,
    *,
    length: int,
    positions: int | None = None,
    seed: int = 0,
) -> Splits:
    """Cut the documents of each split into masked windows.

    Training masks are redrawn on every access. The masks of the other splits are drawn once from `seed`. Raises
    `DataError` if the tokenizer has no mask token, and the errors of `layerwise.data.text.tokens.cut_windows`.
    """
    mask = find_mask_id(tokenizer)
    return _cut(
        tokenizer,
        text,
        lambda split, cut: MaskedWindows(cut, mask, redrawn=split == "train"),
        length=length,
        positions=positions,
        seed=seed,
        objective="masked_token",
    )


def _cut(
    tokenizer: PreTrainedTokenizerBase,
    text: Division,
    examples: Callable[[str, Sequence[Window]], Examples],
    **options: Any,
) -> Splits:
    cut = {
        split: examples(split, cut_windows(Corpus(text.name, join_chunks(documents)), tokenizer, **options))
        for split, documents in text.parts.items()
    }
    rows = (
        (split, document.task, f"{document.answer_start}/{document.text}".encode())
        for split, documents in text.parts.items()
        for document in documents
    )
    pad = tokenizer.pad_token_id
    return Splits(
        text.name, digest(rows), cut["train"], cut["validation"], cut["test"], pad_id=pad if isinstance(pad, int) else 0
    )


def pack_training_windows(splits: Splits, length: int, *, seed: int, start: int | None) -> Splits:
    """Pack the training windows into rows of at most `length` tokens, which changes the digest.

    `start` is the start token of all windows, if there is one. Raises `DataError` if the examples are not
    `TokenWindows`.
    """
    if not isinstance(splits.train, TokenWindows):
        raise DataError("--pack requires a model that predicts the next token. Omit --pack.")
    rows = pack_windows(splits.train.windows, length, seed, start)
    state = digest([("train", f"packed {length} {seed}", splits.digest.encode())])
    return replace(splits, train=rows, digest=state)


def keep_full_windows(texts: TokenWindows, length: int) -> TokenWindows:
    """Keep the windows of exactly `length` tokens, so that every training step reads the same number of tokens.

    Raises `DataError` if there are none.
    """
    full = [window for window in texts.windows if len(window.ids) == length]
    if not full:
        longest = max((len(window.ids) for window in texts.windows), default=0)
        raise DataError(
            f"At least one training document must have {length} tokens, since only steps of equally many tokens are "
            f"comparable. Pass --max-length {longest} or less, or longer documents."
        )
    return TokenWindows(full)


def select_evenly(texts: TokenWindows, limit: int) -> TokenWindows:
    count = len(texts)
    return TokenWindows([texts.windows[index * count // limit] for index in range(limit)]) if limit < count else texts
