"""Units of resampling: what an interval is over, documents or their windows, and the fewest that give one."""

from __future__ import annotations

from typing import Literal

FEWEST_UNITS = 8
"""Below this an interval over units is not honest: no p-value from sign flips could be below 1 / 64."""


def resampling_unit(documents: int) -> Literal["document", "window"]:
    """What is resampled for a task of so many documents: windows if there are fewer than 8 documents.

    >>> resampling_unit(8), resampling_unit(1)
    ('document', 'window')
    """
    return "document" if documents >= FEWEST_UNITS else "window"
