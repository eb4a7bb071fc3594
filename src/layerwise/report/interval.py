"""The interval of a score as a report shows it: both of its ends, or none."""

from __future__ import annotations

import math
from dataclasses import replace

from layerwise.results.rows import Score


def bounded(score: Score) -> Score:
    """The score, its interval left out unless both ends are finite.

    >>> half = bounded(Score("robustness", "baseline", "sequential", "accuracy", 0.5, 0.4, math.inf))
    >>> half.low, half.high
    (None, None)
    """
    if score.low is None and score.high is None:  # most rows of a run: nothing to leave out
        return score
    if all(bound is not None and math.isfinite(bound) for bound in (score.low, score.high)):
        return score
    return replace(score, low=None, high=None)
