"""Span masking: which tokens of a segment a model must fill in, and what it sees in their place.

The segment is divided into spans whose lengths are drawn from the geometric distribution (Joshi et al. 2020,
"SpanBERT", section 3.1), at least 1 and at most 10 tokens long. Spans are taken in random order until 15 % of the
tokens are masked; the last one is shortened, so the share is met. Of every ten spans, eight are shown as `[MASK]`, one
as random tokens and one as it is: the coin is thrown for the span, not for each of its tokens. `[PAR]` and other
special tokens are neither masked nor shown in place of others.

What is drawn is decided by (seed, index, number) alone: a training that resumes sees the masks that it would have
seen, whoever reads them. Validation always reads index 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset
from transformers import PreTrainedTokenizerBase

from layerwise.data.batches import IGNORED
from layerwise.data.splits import Example, Examples
from layerwise.data.text.segments import Segments
from layerwise.data.text.tokenizer import masking_id
from layerwise.errors import DataError

Ids = NDArray[np.int64]

LONGEST = 10
"""Tokens in the longest span."""

_SHOWN_AS_MASK, _SHOWN_AS_RANDOM = 0.8, 0.9
"""Where the coin of a span must fall: below the first, between the two, above the second (left as it is)."""

_SHORTENED = 0.1
"""The share of training segments that are cut to a random length, so that short texts are read too."""

TRAINING, HELD_OUT = 0, 1
"""What keeps the masks of training apart from those of held-out text."""


@dataclass(frozen=True, slots=True, eq=False)
class SpanMasking:
    """Masks tokens: `mask` is shown in their place, or one of `ordinary` (ids,), the tokens that stand for text.

    `share` of the ordinary tokens of a segment are masked; a span goes on with probability 1 - `stop`.
    """

    mask: int
    ordinary: Ids
    share: float = 0.15
    stop: float = 1 / 3
    longest: int = LONGEST

    @classmethod
    def of(cls, tokenizer: PreTrainedTokenizerBase, share: float = 0.15, stop: float = 1 / 3) -> SpanMasking:
        """The masking for a tokenizer.

        Raises `DataError` for a tokenizer without a mask, for a share outside (0, 1) and for a stop outside (0, 1].
        """
        if not 0 < share < 1:
            raise DataError(f"a share of {share} was to be masked; write a number between 0 and 1, such as 0.15")
        if not 0 < stop <= 1:
            raise DataError(f"spans were to stop with a chance of {stop}; write a number above 0 and up to 1")
        special = set(tokenizer.all_special_ids)
        ordinary = [number for number in range(len(tokenizer)) if number not in special]
        return cls(masking_id(tokenizer), np.array(ordinary, dtype=np.int64), share, stop)

    def draw(self, ids: Ids, random: np.random.Generator) -> tuple[Ids, Ids]:
        """The inputs and the targets, both of the shape (seq,) of `ids`; a position without a target is `IGNORED`.

        Of n ordinary tokens `share * n` are masked, rounded up or down at random so that the mean is exact, and at
        least one. A segment without an ordinary token is returned as it is.
        """
        shown, targets = ids.copy(), np.full_like(ids, IGNORED)
        candidates = np.isin(ids, self.ordinary)
        count = int(candidates.sum())
        if count == 0:
            return shown, targets
        budget = min(count, max(1, int(self.share * count + random.random())))
        span = self._spans(len(ids), random)
        rank = random.permutation(span[-1] + 1)[span]
        in_order = np.argsort(rank, kind="stable")
        chosen = in_order[candidates[in_order]][:budget]
        coins = random.random(span[-1] + 1)[span[chosen]]
        targets[chosen] = ids[chosen]
        shown[chosen[coins < _SHOWN_AS_MASK]] = self.mask
        replaced = chosen[(coins >= _SHOWN_AS_MASK) & (coins < _SHOWN_AS_RANDOM)]
        shown[replaced] = random.choice(self.ordinary, size=len(replaced))
        return shown, targets

    def _spans(self, length: int, random: np.random.Generator) -> Ids:
        """The number of the span that each of `length` tokens is in, ascending from 0."""
        lengths = np.minimum(random.geometric(self.stop, size=length), self.longest)
        spans: Ids = np.repeat(np.arange(length), lengths)[:length]
        return spans


class Draw(NamedTuple):
    """One example of a training: which segment of which length, and the index (step, slot) that decides its masks."""

    length: int
    segment: int
    step: int
    slot: int


class MaskedSegments(Dataset[Example]):
    """Training examples, read by their `Draw`: one in ten segments is cut to a random length, and all are masked.

    `segments` are those of every length that is trained with.
    """

    def __init__(
        self, segments: Sequence[Segments], masking: SpanMasking, tokenizer: PreTrainedTokenizerBase, seed: int
    ) -> None:
        self.segments = {each.length: each for each in segments}
        self.masking = masking
        self.around = _around(tokenizer)
        self.seed = seed

    def __getitem__(self, draw: Draw) -> Example:
        """`{"input_ids": int64 (seq,), "labels": int64 (seq,)}`."""
        random = np.random.default_rng((self.seed, TRAINING, draw.step, draw.slot))
        ids = self.segments[draw.length].ids(draw.segment)
        if random.random() < _SHORTENED:
            ids = ids[: random.integers(1, len(ids) + 1)]
        return _example(ids, self.around, self.masking, random)


class FixedMasks(Examples):
    """Held-out examples: every segment whole, always with the same masks; at most `limit`, spread over the text.

    `owners` (examples,) is the document that each is of.
    """

    def __init__(
        self, segments: Segments, masking: SpanMasking, tokenizer: PreTrainedTokenizerBase, limit: int | None = None
    ) -> None:
        self.segments = segments
        self.masking = masking
        self.around = _around(tokenizer)
        count = min(len(segments), limit or len(segments))
        self.numbers = np.linspace(0, len(segments) - 1, count).round().astype(np.int64)
        self.owners = segments.owners[self.numbers]

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: int) -> Example:
        """`{"input_ids": int64 (seq,), "labels": int64 (seq,)}`."""
        number = int(self.numbers[index])
        random = np.random.default_rng((0, HELD_OUT, 0, number))
        return _example(self.segments.ids(number), self.around, self.masking, random)


@dataclass(frozen=True, slots=True)
class Padding:
    """Makes a batch of examples, all padded on the right; a Trainer's `data_collator`.

    Rows are as long as the longest, rounded up to a `multiple` of tokens: few different shapes are faster to compile.
    """

    pad: int
    multiple: int = 8

    def __call__(self, examples: Sequence[Example]) -> Example:
        """`input_ids`, `attention_mask` and `labels`, each int64 (batch, seq)."""
        ids = [example["input_ids"] for example in examples]
        batch = {
            "input_ids": pad_sequence(ids, batch_first=True, padding_value=self.pad),
            "attention_mask": pad_sequence([torch.ones_like(row) for row in ids], batch_first=True),
            "labels": pad_sequence([each["labels"] for each in examples], batch_first=True, padding_value=IGNORED),
        }
        fill = {"input_ids": self.pad, "attention_mask": 0, "labels": IGNORED}
        missing = -batch["input_ids"].shape[1] % self.multiple
        return {name: torch.nn.functional.pad(tensor, (0, missing), value=fill[name]) for name, tensor in batch.items()}


def _around(tokenizer: PreTrainedTokenizerBase) -> tuple[int, int]:
    return int(tokenizer.cls_token_id), int(tokenizer.sep_token_id)


def _example(
    ids: NDArray[np.int32], around: tuple[int, int], masking: SpanMasking, random: np.random.Generator
) -> Example:
    shown, targets = masking.draw(ids.astype(np.int64), random)
    return {
        "input_ids": torch.from_numpy(np.concatenate([around[:1], shown, around[1:]])),
        "labels": torch.from_numpy(np.concatenate([[IGNORED], targets, [IGNORED]])),
    }
