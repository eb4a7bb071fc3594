"""Zones of the depth under a plan: runs of neighboring states that are alike (Sun et al. 2024, section 3.1).

State j is the output of stage j. The contrast of a run is the mean similarity inside minus that between the run and all
other states, without the embedding, which is unlike every state. Borders and p-values come from rows
(`layerwise.measure.activations`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

import numpy as np

from layerwise.page.data import ReportData, computed_once
from layerwise.page.show import SIGNED
from layerwise.page.text.number_format import probability
from layerwise.page.text.wording import listed
from layerwise.plan import Plan
from layerwise.results.rows import Score
from layerwise.results.selection import PRESENT, Rows
from layerwise.results.vocabulary import SIMILARITY, STATES, ZONES

SIMILARITIES = {
    "cosine": "Cosine, all tokens",
    "cosine_no_sink": "Cosine, without the sink token",
    "cka": "CKA, unbiased",
    "cosine_flattened": "Cosine of flattened states, as published",
}
"""The similarities of hidden states, and their names."""

LEVEL, MARGIN = 0.01, 0.02
"""What one zone more takes: the share of walks that separate as much, and the cosine that its borders are worth."""


@dataclass(frozen=True, slots=True)
class PlanZones:
    """The zones of the states 1 to `states` under one plan.

    `borders` are the first states of the zones after the first (None if there are too few states), `contrasts` those of
    the borders, and `p` tests for more zones.
    """

    plan: str
    states: int
    borders: tuple[int, ...] | None
    contrasts: tuple[Score, ...]
    p: float | None

    @property
    def ranges(self) -> tuple[tuple[int, int], ...]:
        """The first and the last state of every zone; none where there are no zones."""
        if self.borders is None:
            return ()
        edges = (1, *self.borders, self.states + 1)
        return tuple((first, stop - 1) for first, stop in pairwise(edges))

    @property
    def by_margin(self) -> str:
        """That only what their borders are worth refused more zones, which are clearer than walks give; else empty."""
        if self.p is None or self.p > LEVEL:
            return ""
        return (
            f"More zones beat the random-walk null (p = {probability(self.p)}) but fall below the {MARGIN:g} cosine"
            " threshold."
        )

    @property
    def shown_p(self) -> str:
        """The p-value of more zones; where it is not what refused them, that the margin is."""
        by_margin = f" (below the {MARGIN:g} cosine threshold)" if self.by_margin else ""
        return f"{probability(self.p)}{by_margin}"

    @property
    def longest(self) -> tuple[int, int]:
        """Return the first and last state of the longest zone, the middle of the depth; the first of equal ones."""
        return max(self.ranges, key=lambda zone: (zone[1] - zone[0], -zone[0]))

    def part(self, zone: tuple[int, int]) -> str:
        return "beginning" if zone < self.longest else "middle" if zone == self.longest else "ending"

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
        """The zones as ranges of states; of too few states a dash."""
        return " | ".join(f"{first}–{last}" if last > first else str(first) for first, last in self.ranges) or "–"

    @property
    def borders_in_words(self) -> str:
        """What the borders are worth, in units of cosine; without any a dash."""
        return listed([SIGNED.text(score) for score in self.contrasts]) or "–"


def plan_zones(data: ReportData) -> tuple[PlanZones, ...]:
    rows = data.rows.where(measure=(STATES, ZONES))
    return tuple(_of_plan(plan, own) for plan, own in rows.by("plan").items())


def trained_zones(data: ReportData) -> PlanZones | None:
    """The zones of the model as trained; `None` where its states were not compared, or are too few to be cut."""
    trained = str(Plan.identity(data.depth)) if data.depth else ""
    return next((each for each in plan_zones(data) if each.plan == trained and each.ranges), None)


def _of_plan(plan: str, rows: Rows) -> PlanZones:
    states = max(rows.where(metric="variance").axis("layer"), default=0)
    borders, contrasts = (
        dict(sorted(rows.where(metric=metric).along("layer").items())) for metric in ("border", "contrast")
    )
    cut = rows.one(metric="zones") is not None
    return PlanZones(plan, states, tuple(borders) if cut else None, tuple(contrasts.values()), rows.value(metric="p"))


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


@computed_once
def matrix(data: ReportData, metric: str, bound: Bound = "value") -> Matrix | None:
    """Return the similarity of every pair of states, or a bound of it, or None if most pairs are missing.

    A pair without a row, or without the interval for a bound, is `None`; the diagonal is 1.
    """
    rows = data.rows.where(measure=SIMILARITY, metric=metric, layer=PRESENT, other=PRESENT)
    values = {
        (row.layer or 0, row.other or 0): row.value if row.layer == row.other else getattr(row, bound)
        for row in mirrored(rows)
    }
    size = 1 + max((max(pair) for pair in values), default=-1)
    if len(values) < max(1, size * (size - 1) // 2):
        return None
    return tuple(tuple(values.get((row, column)) for column in range(size)) for row in range(size))


class Runs:
    """Mean similarities of runs of neighboring states, inside and with all others, without the embedding.

    Block sums are exact: prefix sums of integers, in the smallest unit whose sums fit 64 bits.
    """

    def __init__(self, values: Matrix) -> None:
        self.size = len(values)
        numbers = np.array(values, dtype=float)
        known = ~np.isnan(numbers) & ~np.eye(self.size, dtype=bool)
        numbers = np.where(known, numbers, 0.0)
        _, bits = math.frexp(float(np.abs(numbers).max(initial=1.0)) * self.size**2)
        self.unit = 2.0 ** (62 - bits)
        whole = np.rint(numbers * self.unit).astype(np.int64)
        self.sums, self.counts = (
            np.pad(each.cumsum(0).cumsum(1), ((1, 0), (1, 0))) for each in (whole, known.astype(np.int64))
        )

    def means(self, first: int, lasts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the means inside the run from `first` to each of `lasts` and with the others; NaN without pairs."""

        def sum_blocks(sums: np.ndarray, left: np.ndarray | int, right: np.ndarray | int) -> np.ndarray:
            return sums[lasts + 1, right] - sums[first, right] - sums[lasts + 1, left] + sums[first, left]

        alike, pairs = (sum_blocks(each, first, lasts + 1) for each in (self.sums, self.counts))
        whole, known = (sum_blocks(each, 1, self.size) for each in (self.sums, self.counts))
        with np.errstate(divide="ignore", invalid="ignore"):
            return alike / self.unit / pairs, (whole - alike) / self.unit / (known - pairs)

    def contrasts(self, first: int, lasts: np.ndarray) -> np.ndarray:
        """Return the mean inside each run minus that with the other states; 0 where there is nothing to compare."""
        inside, outside = self.means(first, lasts)
        return np.nan_to_num(inside - outside)

    def contrast(self, first: int, last: int) -> float:
        """How much more alike the states of a run are than the run and the others; 0 where there is nothing to compare.

        >>> Runs(((1, 0, 0, 0), (0, 1, 0.9, 0.5), (0, 0.9, 1, 0.5), (0, 0.5, 0.5, 1))).contrast(1, 2)
        0.4
        """
        return float(self.contrasts(first, np.array([last]))[0])

    def clearest(self) -> Zone | None:
        best: Zone | None = None
        for first in range(1, self.size):
            lasts = np.arange(first + SMALLEST_ZONE - 1, min(self.size, first + self.size - 2))
            contrasts = self.contrasts(first, lasts)
            if len(contrasts) and (best is None or contrasts.max() > best.contrast):
                at = int(contrasts.argmax())
                best = Zone(first, int(lasts[at]), float(contrasts[at]))
        return best

    @classmethod
    def bounds(cls, data: ReportData, metric: str, first: int, last: int) -> tuple[float, float] | None:
        """Return bounds of the contrast of a run: least similarity inside minus greatest outside, and the reverse.

        They hold for any correlation of errors. `None` if pairs have no intervals.
        """
        lows, highs = matrix(data, metric, "low"), matrix(data, metric, "high")
        if lows is None or highs is None:
            return None
        least, most = (cls(values).means(first, np.array([last])) for values in (lows, highs))
        bounds = float(least[0][0] - most[1][0]), float(most[0][0] - least[1][0])
        return None if math.isnan(sum(bounds)) else bounds
