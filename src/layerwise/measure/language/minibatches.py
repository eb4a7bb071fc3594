"""Minibatches: the windows of a reading in small batches of like length, for training in small steps."""

from __future__ import annotations

from layerwise.data.batches import AnyBatch, of_like_length, regrouped
from layerwise.measure.language.evaluation_data import EvalData


def minibatches(data: EvalData, tokens: int) -> tuple[AnyBatch, ...]:
    """The windows of `data` in batches of at most `tokens` tokens, padding counted, the longest first.

    Targets and masks are those of the reading.
    """
    windows = [window for batch in data.batches for window in batch.windows]
    return tuple(batch for group in of_like_length(windows, tokens) for batch in regrouped(data.batches, group))
