"""Texts: documents as the splits that a language model is trained and judged on.

Each document is cut into windows as everywhere else (`layerwise.data.text.tokens`); parts of one text are joined.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from layerwise.data.batches import labelled, row_of
from layerwise.data.splits import Example, Examples, Splits, digest
from layerwise.data.text.corpus import Corpus
from layerwise.data.text.division import Division
from layerwise.data.text.documents import joined
from layerwise.data.text.packing import packed
from layerwise.data.text.tokenizer import masking_id
from layerwise.data.text.tokens import Objective, Window, masked, windows
from layerwise.errors import DataError


class TokenWindows(Examples):
    """Windows of tokens, each with the ids it asks for as labels; a model of `...ForCausalLM` shifts them itself."""

    def __init__(self, windows: Sequence[Window]) -> None:
        self.windows = tuple(windows)

    def __len__(self) -> int:
        return len(self.windows)

    def __getitem__(self, index: int) -> Example:
        ids, labels = labelled(self.windows[index])
        return {"input_ids": ids, "labels": labels}


class MaskedWindows(Examples):
    """Windows of masked tokens: `mask` replaces them, and they are the labels (`...ForMaskedLM` does not shift them).

    With `redrawn` torch's generator draws them at every reading, otherwise they are those of each window.
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
            window = masked(window, int(torch.randint(2**31, (), device="cpu")))
        ids, labels = row_of(window, self.mask)
        return {"input_ids": ids, "labels": labels}


def splits_of(
    tokenizer: PreTrainedTokenizerBase,
    text: Division,
    *,
    length: int,
    positions: int | None = None,
    objective: Objective = "next_token",
) -> Splits:
    """Return the splits of a divided text as windows of `length` tokens; joins parts of a document.

    Raises `DataError` for a masked-token objective, and as `layerwise.data.text.tokens.windows` does.
    """
    if objective != "next_token":
        raise DataError(
            "texts are prepared for models that predict the next token, and this one fills in masked tokens: "
            "give a model of the ...ForCausalLM kind"
        )
    return _cut(tokenizer, text, lambda _, cut: TokenWindows(cut), length=length, positions=positions)


def masked_splits_of(
    tokenizer: PreTrainedTokenizerBase,
    text: Division,
    *,
    length: int,
    positions: int | None = None,
    seed: int = 0,
) -> Splits:
    """Return the splits for masked models: training masks are redrawn at every reading, others drawn from `seed`.

    Raises `DataError` for a tokenizer without a mask, and as `layerwise.data.text.tokens.windows` does.
    """
    mask = masking_id(tokenizer)
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
        split: examples(split, windows(Corpus(text.name, joined(documents)), tokenizer, **options))
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


def with_packed_training(splits: Splits, length: int, *, seed: int, start: int | None) -> Splits:
    """The splits with the windows to train on packed in rows of `length` tokens (`layerwise.data.text.packing`).

    Another digest: a step reads other texts together. `start` is the token that windows begin with, if there is one.
    Raises `DataError` for examples that are no windows of a text.
    """
    if not isinstance(splits.train, TokenWindows):
        raise DataError("only texts for models that predict the next token are packed: leave --pack out")
    rows = packed(splits.train.windows, length, seed, start)
    state = digest([("train", f"packed {length} {seed}", splits.digest.encode())])
    return replace(splits, train=rows, digest=state)


def whole(texts: TokenWindows, length: int) -> TokenWindows:
    """Keep the windows of exactly `length` tokens, so every step reads as many; raises `DataError` if none are."""
    kept = [window for window in texts.windows if len(window.ids) == length]
    if not kept:
        longest = max((len(window.ids) for window in texts.windows), default=0)
        raise DataError(
            f"no document to train on has {length} tokens, and steps that read unlike numbers of tokens cannot be "
            f"compared: use --max-length {longest} or less, or give longer documents"
        )
    return TokenWindows(kept)


def evenly_spaced(texts: TokenWindows, limit: int) -> TokenWindows:
    count = len(texts)
    return TokenWindows([texts.windows[index * count // limit] for index in range(limit)]) if limit < count else texts
