"""Training, validation and test splits of texts for language models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from layerwise.data.batches import build_labeled_row, build_row
from layerwise.data.splits import Example, Examples, Splits, digest
from layerwise.data.text.corpus import Corpus
from layerwise.data.text.division import Division
from layerwise.data.text.documents import join_chunks
from layerwise.data.text.packing import pack_windows
from layerwise.data.text.tokenizer import find_mask_id
from layerwise.data.text.tokens import Objective, Window, cut_windows, mask_window
from layerwise.errors import DataError


class TokenWindows(Examples):
    """Token windows with their scored ids as labels, which `...ForCausalLM` models shift themselves."""

    def __init__(self, windows: Sequence[Window]) -> None:
        self.windows = tuple(windows)

    def __len__(self) -> int:
        return len(self.windows)

    def __getitem__(self, index: int) -> Example:
        ids, labels = build_labeled_row(self.windows[index])
        return {"input_ids": ids, "labels": labels}


class MaskedWindows(Examples):
    """Masked token windows: `mask` replaces the masked tokens, which are the labels.

    With `redrawn` torch's generator draws new masks on every access.
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
    """Cut a divided text into windows of `length` tokens, joining the chunks of each document.

    Raises `DataError` for a masked-token objective, and as `layerwise.data.text.tokens.windows`.
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
    """Cut a divided text into masked windows; training masks are redrawn on every access, others drawn from `seed`.

    Raises `DataError` for a tokenizer without a mask token, and as `layerwise.data.text.tokens.windows`.
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
    """Pack the training windows into rows of `length` tokens, which changes the digest.

    `start` is the start token of all windows, if any. Raises `DataError` for examples that are not `TokenWindows`.
    """
    if not isinstance(splits.train, TokenWindows):
        raise DataError("--pack requires text for models that predict the next token. Omit it.")
    rows = pack_windows(splits.train.windows, length, seed, start)
    state = digest([("train", f"packed {length} {seed}", splits.digest.encode())])
    return replace(splits, train=rows, digest=state)


def keep_full_windows(texts: TokenWindows, length: int) -> TokenWindows:
    """Keep the windows of exactly `length` tokens, so all steps read equally many. Raises `DataError` without any."""
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
