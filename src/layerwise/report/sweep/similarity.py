"""Similarity rows as square matrices, and what they say about zones of alike hidden states.

A zone in the Painters' sense is a run of neighbouring hidden states that look like each other and unlike the rest
(Sun et al. 2024, section 3.1). Its contrast is the mean similarity inside the run minus the mean similarity between the
run and all other states. The embedding is left out of both: it is unlike every state, so that any run would stand out
against it, and a run of all other states is no zone.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from layerwise.report.evidence import Evidence
from layerwise.results.selection import PRESENT
from layerwise.results.vocabulary import SIMILARITY

Bound = Literal["value", "low", "high"]
Matrix = tuple[tuple[float | None, ...], ...]
SMALLEST_ZONE = 3


@dataclass(frozen=True, slots=True)
class Zone:
    """A run of hidden states first..last (0 is the embedding) and its contrast, in units of the similarity."""

    first: int
    last: int
    contrast: float


def matrix(evidence: Evidence, metric: str, bound: Bound = "value") -> Matrix | None:
    """The similarity of every pair of hidden states, or one bound of it, or `None` when it was not measured.

    It is `None` also when there are fewer pairs than states, which is no matrix. A pair listed once counts for both its
    orders; a pair that was not listed, or has no interval when a bound is asked for, is `None`. A state is as similar
    to itself as can be, which needs no interval.
    """
    values: dict[tuple[int, int], float | None] = {}
    for score in evidence.run.rows.where(measure=SIMILARITY, metric=metric, layer=PRESENT, other=PRESENT):
        left, right = score.layer or 0, score.other or 0
        value: float | None = score.value if left == right else getattr(score, bound)
        values[left, right] = value
        values.setdefault((right, left), value)
    if not values:
        return None
    size = 1 + max(max(pair) for pair in values)
    if len(values) < size:
        return None
    return tuple(tuple(values.get((row, column)) for column in range(size)) for row in range(size))


def difference(left: Matrix, right: Matrix) -> Matrix:
    """left - right, pair by pair, for the states that both have."""
    return tuple(
        tuple(None if a is None or b is None else a - b for a, b in zip(above, below, strict=False))
        for above, below in zip(left, right, strict=False)
    )


def contrast(values: Matrix, first: int, last: int) -> float:
    """Mean similarity inside the run first..last minus its mean similarity with all states outside, 0 where there are
    none; the embedding, state 0, counts for neither.

    >>> contrast(((1, 0, 0, 0), (0, 1, 0.9, 0.5), (0, 0.9, 1, 0.5), (0, 0.5, 0.5, 1)), 1, 2)
    0.4
    """
    inside = range(first, last + 1)
    alike = _mean(values, [(i, j) for i in inside for j in inside if i != j])
    apart = _mean(values, _outside(inside, len(values)))
    return alike - apart if alike is not None and apart is not None else 0.0


def contrast_bounds(lows: Matrix, highs: Matrix, first: int, last: int) -> tuple[float, float] | None:
    """Bounds of the contrast of a run: the least similarity inside against the greatest outside, and the reverse.

    They hold whatever the errors of two pairs have to do with each other. `None` where no pair has an interval.
    """
    inside = range(first, last + 1)
    low, high = (
        (_mean(within, [(i, j) for i in inside for j in inside if i != j]), _mean(beyond, _outside(inside, len(lows))))
        for within, beyond in ((lows, highs), (highs, lows))
    )
    if low[0] is None or low[1] is None or high[0] is None or high[1] is None:
        return None
    return low[0] - low[1], high[0] - high[1]


def _outside(inside: range, size: int) -> list[tuple[int, int]]:
    return [(i, j) for i in inside for j in range(1, size) if j not in inside]


def _mean(values: Matrix, pairs: list[tuple[int, int]]) -> float | None:
    kept = [value for i, j in pairs if (value := values[i][j]) is not None]
    return fmean(kept) if kept else None


def clearest_zone(values: Matrix) -> Zone | None:
    """The run of at least three hidden states with the greatest contrast, of those that leave a state out besides the
    embedding.

    A run's sums are differences of sums over blocks of the matrix, so that n states take n^2 steps; they are sums of
    whole numbers, which round as `contrast` does.
    """
    size, sums = len(values), _BlockSums(values)
    runs = [
        Zone(first, last, sums.contrast(first, last))
        for first in range(1, size)
        for last in range(first + SMALLEST_ZONE - 1, size)
        if last - first < size - 2
    ]
    return max(runs, key=lambda zone: zone.contrast, default=None)


class _BlockSums:
    """The sum and the count of what was measured in any block of a matrix, its diagonal left out.

    Every float is a whole number of the smallest unit among them, so no sum is rounded before its mean is taken.
    """

    def __init__(self, values: Matrix) -> None:
        self.size = len(values)
        self.unit = max((value.as_integer_ratio()[1] for row in values for value in row if value), default=1)
        self.before = [[(0, 0)] * (self.size + 1)]
        for row, above in enumerate(values):
            total, count, line = 0, 0, [(0, 0)]
            for column, (value, (over, counted)) in enumerate(zip(above, self.before[row][1:], strict=True)):
                if value is not None and row != column:
                    numerator, denominator = float(value).as_integer_ratio()
                    total, count = total + numerator * (self.unit // denominator), count + 1
                line.append((over + total, counted + count))
            self.before.append(line)

    def contrast(self, first: int, last: int) -> float:
        """As `contrast` of the matrix computes it."""
        alike, pairs = self._block(first, last + 1, first, last + 1)
        whole, known = self._block(first, last + 1, 1, self.size)
        if not pairs or known == pairs:
            return 0.0
        return alike / self.unit / pairs - (whole - alike) / self.unit / (known - pairs)

    def _block(self, top: int, bottom: int, left: int, right: int) -> tuple[int, int]:
        above, below = self.before[top], self.before[bottom]
        total, count = (below[right][n] - below[left][n] - above[right][n] + above[left][n] for n in (0, 1))
        return total, count
