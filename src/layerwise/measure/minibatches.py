"""Minibatches: the windows of a reading in small batches of like length, for training in small steps."""

from __future__ import annotations

from layerwise.data.batches import AnyBatch, of_like_length, regrouped
from layerwise.measure.reading import Reading


def minibatches(reading: Reading, tokens: int) -> tuple[AnyBatch, ...]:
    """The windows of `reading` in batches of at most `tokens` tokens, padding counted, the longest first.

    Targets and masks are those of the reading.
    """
    windows = [window for batch in reading.batches for window in batch.windows]
    return tuple(batch for group in of_like_length(windows, tokens) for batch in regrouped(reading.batches, group))
