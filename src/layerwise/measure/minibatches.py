"""Minibatches: the windows of a reading in small batches of like length, so that little of the work is padding.

A batch is as wide as its longest window. A few long texts and many short answers in one batch cost several times what
they hold; sorted by length and cut small, hardly more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from layerwise.data.batches import AnyBatch, regrouped
from layerwise.data.tokens import Window
from layerwise.measure.reading import Reading


def minibatches(reading: Reading, tokens: int) -> tuple[AnyBatch, ...]:
    """The windows of `reading` in batches of at most `tokens` tokens, padding counted, the longest first.

    A window that is longer is a batch of its own, and no window is more than twice as long as one beside it. Targets
    and masks are those of the reading.
    """
    by_length = sorted((window for batch in reading.batches for window in batch.windows), key=_tokens, reverse=True)
    return tuple(batch for group in _groups(by_length, tokens) for batch in regrouped(reading.batches, group))


def _groups(windows: Sequence[Window], tokens: int) -> Iterator[list[Window]]:
    group: list[Window] = []
    for window in windows:
        widest = _tokens(group[0]) if group else 0
        if group and ((len(group) + 1) * widest > tokens or widest > 2 * _tokens(window)):
            yield group
            group = []
        group.append(window)
    yield group


def _tokens(window: Window) -> int:
    """What a window fills of a batch; a labelled item, which has no tokens, fills one place."""
    return max(1, len(window.ids))
