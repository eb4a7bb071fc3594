"""Similarity rows as square matrices, and what they say about zones of alike hidden states.

A zone in the Painters' sense is a run of neighbouring hidden states that look like each other and unlike the rest
(Sun et al. 2024, section 3.1). Its contrast is the mean similarity inside the run minus the mean similarity between the
run and everything outside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean

from layerwise.report.data import Evidence

Matrix = tuple[tuple[float | None, ...], ...]
SMALLEST_ZONE = 3


@dataclass(frozen=True, slots=True)
class Zone:
    """A run of hidden states first..last (0 is the embedding) and its contrast, in units of the similarity."""

    first: int
    last: int
    contrast: float


def matrix(evidence: Evidence, metric: str) -> Matrix | None:
    """The similarity of every pair of hidden states, or `None` when it was not measured.

    A pair listed once counts for both its orders; a pair that was not listed is `None`.
    """
    values: dict[tuple[int, int], float] = {}
    for score in evidence.scores("similarity"):
        left, _, right = score.subject.partition(",")
        if score.metric == metric and left.strip().isdecimal() and right.strip().isdecimal():
            values[int(left), int(right)] = score.value
            values.setdefault((int(right), int(left)), score.value)
    if not values:
        return None
    size = 1 + max(max(pair) for pair in values)
    return tuple(tuple(values.get((row, column)) for column in range(size)) for row in range(size))


def difference(left: Matrix, right: Matrix) -> Matrix:
    """left - right, pair by pair."""
    return tuple(
        tuple(None if a is None or b is None else a - b for a, b in zip(above, below, strict=True))
        for above, below in zip(left, right, strict=True)
    )


def contrast(values: Matrix, first: int, last: int) -> float:
    """Mean similarity inside the run first..last minus its mean similarity with everything outside.

    >>> contrast(((1.0, 0.0, 0.0), (0.0, 1.0, 0.9), (0.0, 0.9, 1.0)), 1, 2)
    0.9
    """
    inside = range(first, last + 1)
    alike = [values[i][j] for i in inside for j in inside if i != j]
    apart = [values[i][j] for i in inside for j in range(len(values)) if j not in inside]
    kept = ([value for value in alike if value is not None], [value for value in apart if value is not None])
    return fmean(kept[0]) - fmean(kept[1]) if all(kept) else 0.0


def clearest_zone(values: Matrix) -> Zone | None:
    """The run of at least three hidden states, away from the embedding, with the greatest contrast."""
    size = len(values)
    runs = [
        Zone(first, last, contrast(values, first, last))
        for first in range(1, size)
        for last in range(first + SMALLEST_ZONE - 1, size)
    ]
    return max(runs, key=lambda zone: zone.contrast, default=None)
