"""Similarity rows as square matrices, and what they say about zones of alike hidden states.

A zone in the Painters' sense is a run of neighbouring hidden states that look like each other and unlike the rest
(Sun et al. 2024, section 3.1). Its contrast is the mean similarity inside the run minus the mean similarity between the
run and all other states. The embedding is left out of both: it is unlike every state, so that any run would stand out
against it, and a run of all other states is no zone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from layerwise.report.data import ReportData
from layerwise.results.rows import Score
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


def mirrored(rows: Iterable[Score]) -> Iterator[Score]:
    """The similarities of pairs of states in both orders; a pair that is listed in both stays as it is."""
    listed = {(row.metric, row.layer, row.other): row for row in rows}
    yield from listed.values()
    for (metric, layer, other), row in listed.items():
        if (metric, other, layer) not in listed:
            yield replace(row, layer=other, other=layer)


def matrix(data: ReportData, metric: str, bound: Bound = "value") -> Matrix | None:
    """The similarity of every pair of hidden states, or one bound of it, or `None` when it was not measured.

    It is `None` also when there are fewer pairs than states, which is no matrix. A pair that was not listed, or has no
    interval when a bound is asked for, is `None`. A state is as similar to itself as can be, which needs no interval.
    """
    rows = data.rows.where(measure=SIMILARITY, metric=metric, layer=PRESENT, other=PRESENT)
    values = {
        (row.layer or 0, row.other or 0): row.value if row.layer == row.other else getattr(row, bound)
        for row in mirrored(rows)
    }
    size = 1 + max((max(pair) for pair in values), default=-1)
    if not values or len(values) < size:
        return None
    return tuple(tuple(values.get((row, column)) for column in range(size)) for row in range(size))


class Contrasts:
    """The mean similarity inside any run of states, and of the run with all others, the embedding left out.

    Every float is a whole number of the smallest unit among them, so that sums over blocks are differences of sums
    from the corner that round nothing: n states take n^2 steps for all of their runs.
    """

    def __init__(self, values: Matrix) -> None:
        self.size = len(values)
        known = [[row != column and value is not None for column, value in enumerate(line)]
                 for row, line in enumerate(values)]  # fmt: skip
        self.unit = max((value.as_integer_ratio()[1] for line in values for value in map(float, filter(None, line))),
                        default=1)  # fmt: skip
        whole = [[_units(value, self.unit) if kept else 0 for value, kept in zip(line, mask, strict=True)]
                 for line, mask in zip(values, known, strict=True)]  # fmt: skip
        self.sums, self.counts = (_from_corner(each) for each in (whole, known))

    def means(self, first: int, last: int) -> tuple[float, float] | None:
        """Inside the run first..last, and with the states outside; `None` where no pair of either is known."""
        inside, outside = (first, last + 1, first, last + 1), (first, last + 1, 1, self.size)
        alike, pairs = _block(self.sums, *inside), _block(self.counts, *inside)
        whole, known = _block(self.sums, *outside), _block(self.counts, *outside)
        if not pairs or known == pairs:
            return None
        return alike / self.unit / pairs, (whole - alike) / self.unit / (known - pairs)

    def of(self, first: int, last: int) -> float:
        """How much more alike the states of a run are than the run and the others; 0 where there is nothing to compare.

        >>> Contrasts(((1, 0, 0, 0), (0, 1, 0.9, 0.5), (0, 0.9, 1, 0.5), (0, 0.5, 0.5, 1))).of(1, 2)
        0.4
        """
        means = self.means(first, last)
        return means[0] - means[1] if means else 0.0

    def clearest(self) -> Zone | None:
        """The run of at least three hidden states with the greatest contrast, of those that leave a state out besides
        the embedding."""
        runs = [
            Zone(first, last, self.of(first, last))
            for first in range(1, self.size)
            for last in range(first + SMALLEST_ZONE - 1, self.size)
            if last - first < self.size - 2
        ]
        return max(runs, key=lambda zone: zone.contrast, default=None)


def contrast_bounds(lows: Matrix, highs: Matrix, first: int, last: int) -> tuple[float, float] | None:
    """Bounds of the contrast of a run: the least similarity inside against the greatest outside, and the reverse.

    They hold whatever the errors of two pairs have to do with each other. `None` where no pair has an interval.
    """
    least, most = (Contrasts(values).means(first, last) for values in (lows, highs))
    return (least[0] - most[1], most[0] - least[1]) if least and most else None


def clearest_zone(values: Matrix) -> Zone | None:
    """The clearest run of hidden states; `None` of fewer than five."""
    return Contrasts(values).clearest()


def _units(value: float | None, unit: int) -> int:
    numerator, denominator = float(value or 0.0).as_integer_ratio()
    return numerator * (unit // denominator)


def _from_corner(values: object) -> np.ndarray:
    """Sums of whole numbers of any size over every block that begins in the corner."""
    return np.pad(np.array(values, dtype=object).cumsum(0).cumsum(1), ((1, 0), (1, 0)))


def _block(sums: np.ndarray, top: int, bottom: int, left: int, right: int) -> int:
    return int(sums[bottom][right] - sums[top][right] - sums[bottom][left] + sums[top][left])
