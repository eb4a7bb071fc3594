"""Span masking of segments (Joshi et al. 2020, "SpanBERT", section 3.1).

Spans of 1 to 10 tokens, with a geometric length, are drawn until 15% of the tokens are masked. 80% of the spans become
`[MASK]`, 10% become random tokens, and 10% stay unchanged. The draws depend only on the seed and the index of the
example, so resumed runs match.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby, pairwise
from typing import NamedTuple

import numpy as np
import torch
from numpy.random import Generator, Philox, SeedSequence
from numpy.typing import NDArray
from torch.utils.data import Dataset
from transformers import PreTrainedTokenizerBase

from layerwise.data.batches import IGNORED, pad_rows
from layerwise.data.splits import Example, Examples
from layerwise.data.text.segments import AROUND, Segments
from layerwise.data.text.tokenizer import find_mask_id
from layerwise.errors import DataError

Ids = NDArray[np.int64]
Uniforms = NDArray[np.float64]

ALGORITHM = "spans of SpanBERT, drawn by Philox"
"""Name of the masking algorithm in the record of a training run."""

MAX_SPAN = 10

_SHOWN_AS_MASK, _SHOWN_AS_RANDOM = 0.8, 0.9
"""A span becomes `[MASK]` if its uniform number is below the first, or random tokens if it is below the second."""

_SHORTENED = 0.1

_RANKS = 2**38

_BLOCK = 4

TRAINING, HELD_OUT = 0, 1
"""Separate random streams for the masks of training and held-out text."""


@dataclass(frozen=True, slots=True, eq=False)
class SpanMasking:
    """Masks a `share` of the ordinary (not special) tokens, with `mask` or with random ids of `ordinary` (ids,).

    A span continues with probability 1 - `stop`, up to `longest` tokens.
    """

    mask: int
    ordinary: Ids
    share: float = 0.15
    stop: float = 1 / 3
    longest: int = MAX_SPAN
    _is_ordinary: NDArray[np.bool_] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # The last entry is for all larger ids.
        table = np.zeros(int(self.ordinary.max(initial=-1)) + 2, dtype=np.bool_)
        table[self.ordinary] = True
        object.__setattr__(self, "_is_ordinary", table)

    @classmethod
    def of(cls, tokenizer: PreTrainedTokenizerBase, share: float = 0.15, stop: float = 1 / 3) -> SpanMasking:
        """Build the masking for a tokenizer.

        Raises `DataError` if the tokenizer has no mask token, the share is not in (0, 1), or the stop is not in (0, 1].
        """
        if not 0 < share < 1:
            raise DataError(f"The masked share must be between 0 and 1, got {share}.")
        if not 0 < stop <= 1:
            raise DataError(f"The probability that a span stops must be above 0 and at most 1, got {stop}.")
        special = set(tokenizer.all_special_ids)
        ordinary = [number for number in range(len(tokenizer)) if number not in special]
        return cls(find_mask_id(tokenizer), np.array(ordinary, dtype=np.int64), share, stop)

    def numbers(self, width: int) -> int:
        return 1 + 2 * width + 2 * self._max_masked(width)

    def draw(self, ids: Ids, lengths: Ids, random: Uniforms) -> tuple[Ids, Ids]:
        """Draw masked inputs and targets, both of the shape (rows, seq) of `ids`.

        Only the first `lengths[r]` tokens of row r are text. Of its n ordinary tokens, `share * n` are masked, rounded
        up or down at random without bias, but at least one. The targets of all other tokens are `IGNORED`. `random`
        (rows, `numbers(seq)`) contains uniform numbers in [0, 1).
        """
        width, max_masked = ids.shape[1], self._max_masked(ids.shape[1])
        rounding, stops, ranks, coins, choices = np.split(random, np.cumsum([1, width, width, max_masked]), axis=1)
        position = np.arange(width)
        candidates = np.take(self._is_ordinary, ids, mode="clip") & (position < lengths[:, None])
        count = candidates.sum(axis=1)
        budget = np.minimum(count, np.maximum(1, (self.share * count + rounding[:, 0]).astype(np.int64)))
        # Tokens are ordered by the rank of their span, then by position, in one integer.
        first = np.arange(len(ids))[:, None] * width
        span = self._spans(stops) + first
        digits = max(1, width - 1).bit_length()
        order = (np.take(ranks, span) * _RANKS).astype(np.int64) << digits | position
        np.putmask(order, ~candidates, np.iinfo(np.int64).max)
        order.sort(axis=1)
        positions = order[:, :max_masked] & ((1 << digits) - 1)
        in_budget = np.arange(max_masked) < budget[:, None]
        at = (np.minimum(positions, width - 1) + first)[in_budget]
        coin = np.take_along_axis(coins, _numbered(order[:, :max_masked] >> digits), axis=1)[in_budget]
        token = self.ordinary[(choices[in_budget] * len(self.ordinary)).astype(np.int64)]
        inputs, targets = ids.copy(), np.full_like(ids, IGNORED)
        original = ids.ravel()[at]
        targets.ravel()[at] = original
        replaced = np.where(coin < _SHOWN_AS_RANDOM, token, original)
        inputs.ravel()[at] = np.where(coin < _SHOWN_AS_MASK, self.mask, replaced)
        return inputs, targets

    def _max_masked(self, width: int) -> int:
        return min(width, int(self.share * width) + 1)

    def _spans(self, stops: Uniforms) -> Ids:
        lengths = np.ones(stops.shape, dtype=np.int8)  # eight times as fast as int64
        for others in range(1, self.longest):
            lengths += (stops >= 1 - (1 - self.stop) ** others).view(np.int8)
        count, width = stops.shape
        ends = np.minimum(np.cumsum(lengths, axis=1, dtype=np.int64), width)
        begins = np.zeros((count, width + 1), dtype=np.int8)
        begins.ravel()[(ends + np.arange(count)[:, None] * (width + 1)).ravel()] = 1
        spans: Ids = np.cumsum(begins[:, :width], axis=1, dtype=np.int64)
        return spans


def _numbered(ranks: Ids) -> Ids:
    changes = np.zeros_like(ranks)
    changes[:, 1:] = ranks[:, 1:] != ranks[:, :-1]
    numbers: Ids = np.cumsum(changes, axis=1)
    return numbers


def draw_uniforms(key: tuple[int, ...], indices: Sequence[int], count: int) -> Uniforms:
    """Draw uniform numbers in [0, 1), one row of `count` per index. Row r depends only on (key, indices[r], count).

    They come from Philox 4x64 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"), a counter-based
    generator that can start at any index. Consecutive indices are drawn together.

    >>> one, two = draw_uniforms((7,), [3, 4], 5)
    >>> bool((draw_uniforms((7,), [4], 5)[0] == two).all())
    True
    """
    blocks = -(-count // _BLOCK)
    drawn = np.empty((len(indices), blocks * _BLOCK))
    philox = Philox(SeedSequence(key))
    random, at = Generator(philox), 0
    breaks = [row for row, (one, other) in enumerate(pairwise(indices), start=1) if other != one + 1]
    for start, end in pairwise([0, *breaks, len(indices)]):
        first = indices[start] * blocks
        philox.advance((first - at) % 2**256)
        random.random(out=drawn[start:end])
        at = first + (end - start) * blocks
    return drawn[:, :count]


class Draw(NamedTuple):
    """One training example: the length and number of its segment, and the step and slot that determine its masks."""

    length: int
    segment: int
    step: int
    slot: int


class MaskedSegments(Dataset[Example]):
    """Masked training examples, indexed by `Draw`. One in ten segments is truncated to a random length."""

    def __init__(
        self, segments: Sequence[Segments], masking: SpanMasking, tokenizer: PreTrainedTokenizerBase, seed: int
    ) -> None:
        self.segments = {each.length: each for each in segments}
        self.masking = masking
        self.around = _around(tokenizer)
        self.seed = seed

    def __getitem__(self, draw: Draw) -> Example:
        return self.__getitems__([draw])[0]

    def __getitems__(self, draws: Sequence[Draw]) -> list[Example]:
        examples: list[Example] = []
        for (length, step), some in groupby(draws, key=lambda draw: (draw.length, draw.step)):
            group = list(some)
            count = self.masking.numbers(length - AROUND)
            random = draw_uniforms((self.seed, TRAINING, length, step), [draw.slot for draw in group], 2 + count)
            ids, lengths = _rows(self.segments[length], [draw.segment for draw in group])
            shortened = 1 + (random[:, 1] * lengths).astype(np.int64)
            lengths = np.where(random[:, 0] < _SHORTENED, shortened, lengths)
            examples += _examples(ids, lengths, self.around, self.masking, random[:, 2:])
        return examples


class FixedMasks(Examples):
    """Held-out examples with fixed masks, from at most `limit` segments spread over the text.

    `owners` (examples,) has the number of each example's document.
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
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Example]:
        numbers = self.numbers[list(indices)].tolist()
        length = self.segments.length
        random = draw_uniforms((0, HELD_OUT, length), numbers, self.masking.numbers(length - AROUND))
        ids, lengths = _rows(self.segments, numbers)
        return _examples(ids, lengths, self.around, self.masking, random)


def make_padding_collator(pad: int) -> Callable[[Sequence[Example]], Example]:
    """Return a `data_collator` that pads `input_ids`, `attention_mask` and `labels` (batch, seq) on the right.

    Lengths are rounded up to a multiple of 8 tokens, since fewer shapes compile faster.
    """
    return partial(pad_rows, pad_id=pad, multiple=8)


def _around(tokenizer: PreTrainedTokenizerBase) -> tuple[int, int]:
    return int(tokenizer.cls_token_id), int(tokenizer.sep_token_id)


def _rows(segments: Segments, numbers: Sequence[int]) -> tuple[Ids, Ids]:
    rows = segments.ids(numbers)
    ids = np.zeros((len(rows), segments.length - AROUND), dtype=np.int64)
    for row, values in zip(ids, rows, strict=True):
        row[: len(values)] = values
    return ids, np.array([len(values) for values in rows], dtype=np.int64)


def _examples(ids: Ids, lengths: Ids, around: tuple[int, int], masking: SpanMasking, random: Uniforms) -> list[Example]:
    begin, end = around
    masked, targets = masking.draw(ids, lengths, random)
    inputs = np.pad(masked, ((0, 0), (1, 1)), constant_values=begin)
    inputs[np.arange(len(ids)), lengths + 1] = end
    labels = np.pad(targets, ((0, 0), (1, 1)), constant_values=IGNORED)
    rows = zip(torch.from_numpy(inputs), torch.from_numpy(labels), (lengths + AROUND).tolist(), strict=True)
    return [{"input_ids": row[:length], "labels": label[:length]} for row, label, length in rows]
