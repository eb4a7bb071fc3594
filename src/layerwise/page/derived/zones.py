"""Zones of similar neighboring hidden states under a plan (Sun et al. 2024, section 3.1).

State j is the output of stage j of the plan. The contrast of consecutive states is their mean similarity to each other
minus their mean similarity to all other states except the embedding. Borders of zones and p-values are not computed
here, but by `layerwise.measure.activations`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from layerwise.page.data import ReportData, cached_per_run
from layerwise.page.formatting import SIGNED, format_p_value, join_words
from layerwise.plan import Plan
from layerwise.results.rows import Score
from layerwise.results.selection import PRESENT, Rows
from layerwise.results.vocabulary import SIMILARITY, STATES, ZONES

SIMILARITIES = {
    "cosine": "Cosine, all tokens",
    "cosine_no_sink": "Cosine, without the sink token",
    "cka": "CKA, unbiased",
    "cosine_flattened": "Cosine of flattened states, as in the Painters paper",
}
"""Names of the similarities of hidden states."""

LEVEL, MARGIN = 0.01, 0.02
"""Conditions for a further zone: maximum p-value under the random-walk null, and minimum cosine contrast of borders."""


@dataclass(frozen=True, slots=True)
class PlanZones:
    """The zones of the states 1 to `states` under a plan.

    `borders` has the first state of every zone except the first zone, or is None if there are too few states.
    `contrasts` are the contrasts of the borders, and `p` is the p-value of the test for one more zone.
    """

    plan: str
    states: int
    borders: tuple[int, ...] | None
    contrasts: tuple[Score, ...]
    p: float | None

    @property
    def ranges(self) -> tuple[tuple[int, int], ...]:
        if self.borders is None:
            return ()
        edges = (1, *self.borders, self.states + 1)
        return tuple((first, stop - 1) for first, stop in pairwise(edges))

    @property
    def by_margin(self) -> str:
        """Return a note if more zones beat the random-walk null but not the cosine threshold; otherwise, empty text."""
        if self.p is None or self.p > LEVEL:
            return ""
        return (
            f"More zones beat the random-walk null (p = {format_p_value(self.p)}) but fall below the {MARGIN:g} cosine"
            " threshold."
        )

    @property
    def shown_p(self) -> str:
        by_margin = f" (below the {MARGIN:g} cosine threshold)" if self.by_margin else ""
        return f"{format_p_value(self.p)}{by_margin}"

    @property
    def longest(self) -> tuple[int, int]:
        """Return the first and last state of the longest zone, which counts as the middle of the model."""
        return max(self.ranges, key=lambda zone: (zone[1] - zone[0], -zone[0]))

    @property
    def beginning(self) -> int:
        return self.longest[0] - 1

    @property
    def middle(self) -> int:
        return 1 + self.longest[1] - self.longest[0]

    @property
    def ending(self) -> int:
        return self.ranges[-1][1] - self.longest[1]

    @property
    def in_words(self) -> str:
        return " | ".join(f"{first}–{last}" if last > first else str(first) for first, last in self.ranges) or "–"

    @property
    def borders_in_words(self) -> str:
        return join_words([SIGNED.text(score) for score in self.contrasts]) or "–"


def read_zones(data: ReportData) -> tuple[PlanZones, ...]:
    rows = data.rows.where(measure=(STATES, ZONES))
    return tuple(_of_plan(plan, group) for plan, group in rows.by("plan").items())


def find_original_zones(data: ReportData) -> PlanZones | None:
    trained = str(Plan.identity(data.depth)) if data.depth else ""
    return next((each for each in read_zones(data) if each.plan == trained and each.ranges), None)


def _of_plan(plan: str, rows: Rows) -> PlanZones:
    states = max(rows.where(metric="variance").axis("state"), default=0)
    borders, contrasts = (
        dict(sorted(rows.where(metric=metric).along("state").items())) for metric in ("border", "contrast")
    )
    cut = rows.one(metric="zones") is not None
    return PlanZones(plan, states, tuple(borders) if cut else None, tuple(contrasts.values()), rows.value(metric="p"))


Bound = Literal["value", "low", "high"]
Matrix = NDArray[np.float64]
SMALLEST_ZONE = 3


def mirror_pairs(rows: Iterable[Score]) -> Iterator[Score]:
    listed = {(row.metric, row.state, row.to_state): row for row in rows}
    yield from listed.values()
    for (metric, state, other), row in listed.items():
        if (metric, other, state) not in listed:
            yield replace(row, state=other, to_state=state)


@cached_per_run
def read_similarities(data: ReportData, metric: str, bound: Bound = "value") -> Matrix | None:
    """Return the similarity of every pair of states, or a bound of its interval, as a square matrix.

    Pairs that were not measured or have no interval are NaN. Return None if most pairs are missing.
    """
    rows = data.rows.where(measure=SIMILARITY, metric=metric, state=PRESENT, to_state=PRESENT)
    values = {
        (row.state or 0, row.to_state or 0): row.value if row.state == row.to_state else getattr(row, bound)
        for row in mirror_pairs(rows)
    }
    size = 1 + max((max(pair) for pair in values), default=-1)
    if len(values) < max(1, size * (size - 1) // 2):
        return None
    similarity = np.full((size, size), np.nan)
    for pair, value in values.items():
        similarity[pair] = np.nan if value is None else value
    return similarity


def mean_similarities(values: Matrix, first: int, last: int) -> tuple[float, float]:
    """Return the mean similarity among the states `first` to `last`, and between them and the other states.

    State 0, the embedding, does not count. A mean of no pairs is NaN.

    >>> values = np.array([[1, 0, 0, 0], [0, 1, 0.9, 0.5], [0, 0.9, 1, 0.5], [0, 0.5, 0.5, 1]])
    >>> mean_similarities(values, 1, 2)
    (0.9, 0.5)
    """
    block = np.where(np.eye(len(values), dtype=bool), np.nan, values)[first : last + 1, 1:]
    parts = block[:, first - 1 : last], np.delete(block, slice(first - 1, last), axis=1)
    inside, outside = (float(part[~np.isnan(part)].mean()) if not np.isnan(part).all() else np.nan for part in parts)
    return inside, outside


def compute_contrast(values: Matrix, first: int, last: int) -> float:
    """Return the first minus the second mean of `mean_similarities`, or 0 if one of them is NaN."""
    inside, outside = mean_similarities(values, first, last)
    return 0.0 if math.isnan(inside - outside) else inside - outside


def find_clearest_zone(values: Matrix) -> tuple[int, int] | None:
    """Return the first and last state of the clearest zone, which has at least three states, but not all of them."""
    size = len(values)
    ends = [
        (first, last)
        for first in range(1, size)
        for last in range(first + SMALLEST_ZONE - 1, min(size, first + size - 2))
    ]
    # Sums of equal similarities differ in their last bits.
    return max(ends, key=lambda run: round(compute_contrast(values, *run), 9), default=None)


def bound_contrast(data: ReportData, metric: str, first: int, last: int) -> tuple[float, float] | None:
    """Return bounds of a contrast that hold for any correlation of errors, or None if there are no intervals."""
    lows, highs = read_similarities(data, metric, "low"), read_similarities(data, metric, "high")
    if lows is None or highs is None:
        return None
    least, most = (mean_similarities(values, first, last) for values in (lows, highs))
    bounds = least[0] - most[1], most[0] - least[1]
    return None if math.isnan(sum(bounds)) else bounds
