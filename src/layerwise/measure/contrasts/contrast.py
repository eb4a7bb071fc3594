"""A contrast: one number made of several effects, with an interval that knows how the effects vary together.

"The core matters twice as much as the median layer" and "order weighs more on reasoning than absence does" are
statements about functions of many effects. Intervals of the single effects do not bound such a function: the effects
are of the same documents and go up and down together. So the documents are resampled once for all effects and the
function is computed on every resample,

    value = f(effects)        effects[i] = sum_u numerator[i, u] / sum_u denominator[u]

with the expanded percentile interval of `layerwise.measure.stats.statistics`. Effects of different texts come in parts,
each with units of its own, and every part is resampled by itself, and so is every stratum of a part.

Rows are of measure `contrast`: `claim` is what the contrast decides, the other columns say which layers
or which change it is of, and `mde` is the minimum detectable contrast at 80 % power.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from layerwise.measure.stats.grid import FEWEST_UNITS
from layerwise.measure.stats.statistics import Numbers, Seed, StratumLabels, expanded_levels, resampled_ratios
from layerwise.results.rows import Score
from layerwise.results.vocabulary import CONTRAST as CONTRAST

RESAMPLES = 2_000
POWER = 0.8

Statistic = Callable[[Numbers], Numbers]
"""From effects of shape (..., effects), the parts one after the other, to one number each, of shape (...)."""


@dataclass(frozen=True, slots=True)
class Part:
    """Effects measured on the same units: `numerators` (effects, units), `denominators` (units,).

    `tokens` and `documents` are what the units are made of, `strata` their labels: without them there is one stratum.
    """

    numerators: Numbers
    denominators: Numbers
    documents: int
    tokens: int
    strata: StratumLabels | None = None

    @property
    def units(self) -> int:
        """How many units there are in the smallest stratum."""
        return int(self.denominators.size if self.strata is None else np.unique_counts(self.strata).counts.min())

    def of(self, indices: Sequence[int]) -> Part:
        """Some of the effects, in the order of `indices`."""
        return replace(self, numerators=self.numerators[list(indices)])

    def on(self, units: Sequence[int] | NDArray[np.intp]) -> Part:
        """The effects on some of the units; of the documents as many are counted as there are units, at most."""
        chosen = np.sort(np.asarray(units, dtype=np.intp))
        denominators = self.denominators[chosen]
        share = denominators.sum() / self.denominators.sum()
        return Part(
            self.numerators[:, chosen], denominators, min(self.documents, chosen.size), round(share * self.tokens),
            None if self.strata is None else self.strata[chosen],
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Contrast:
    """A contrast with its interval at `level`, its standard error, and the units, documents and tokens behind it.

    `units` are those of the smallest stratum. Without an interval `low` and `high` are `None`: there were fewer than 8.
    """

    value: float
    low: float | None
    high: float | None
    error: float
    level: float
    units: int
    documents: int
    tokens: int

    @property
    def mde(self) -> float | None:
        """The contrast that an interval like this one distinguishes from zero with 80 % power; `None` without an
        interval.
        """
        return self.detectable(POWER)

    def detectable(self, power: float) -> float | None:
        """The contrast that an interval like this one distinguishes from zero with `power`; `None` without an interval.

        The longer arm of the interval, plus t[power] standard errors, t of units - 1 degrees of freedom. With skewed
        effects an arm is longer than t[(1 + level) / 2] standard errors. A rule that needs n such findings at once has
        80 % power where each has 1 - 0.2 / n.
        """
        if self.low is None or self.high is None:
            return None
        arm = max(self.value - self.low, self.high - self.value)
        return arm + float(stdtrit(self.units - 1, power)) * self.error

    def row(self, claim: str, metric: str, task: str = "all", power: float = POWER, **columns: Any) -> Score:
        """The contrast as a row about `claim`, its mde at `power`; `columns` say which layers or change it is of."""
        return Score(
            CONTRAST,
            metric,
            self.value,
            self.low,
            self.high,
            claim=claim,
            task=task,
            mde=self.detectable(power),
            documents=self.documents,
            tokens=self.tokens,
            **columns,
        )


def contrast(
    parts: Sequence[Part], statistic: Statistic, *, seed: Seed, level: float = 0.95, resamples: int = RESAMPLES
) -> Contrast:
    """The `statistic` of the effects of all parts, with its bootstrap interval.

    Raises `MeasureError` for numerators that are not finite and denominators that are not positive.

    >>> part = Part(np.array([[2.0] * 8, [1.0] * 8]), np.ones(8), documents=8, tokens=8)
    >>> contrast([part], lambda effects: effects[..., 0] - effects[..., 1], seed=0).value
    1.0
    """
    return contrasts(parts, [statistic], seed=seed, level=level, resamples=resamples)[0]


def contrasts(
    parts: Sequence[Part],
    statistics: Sequence[Statistic],
    *,
    seed: Seed,
    level: float = 0.95,
    resamples: int = RESAMPLES,
) -> tuple[Contrast, ...]:
    """`contrast` of several statistics on the same resamples, which are drawn once."""
    units = min(part.units for part in parts)
    behind = (level, units, sum(part.documents for part in parts), sum(part.tokens for part in parts))
    effects = np.concatenate([_effects(part) for part in parts])
    if units < FEWEST_UNITS:
        return tuple(Contrast(float(each(effects)), None, None, float("nan"), *behind) for each in statistics)
    draws = np.concatenate([_resampled(part, seed, number, resamples) for number, part in enumerate(parts)], axis=-1)
    levels = expanded_levels(level, units)
    results = []
    for statistic in statistics:
        value, drawn = float(statistic(effects)), np.asarray(statistic(draws), dtype=np.float64)
        low, high = (float(bound) for bound in np.quantile(drawn, levels))
        error = float(drawn.std(ddof=1) * np.sqrt(units / (units - 1)))
        results.append(Contrast(value, min(low, value), max(high, value), error, *behind))
    return tuple(results)


def renewed(stored: Sequence[Score], rows: Sequence[Score], claims: Collection[str]) -> list[Score]:
    """The contrasts of a run once those about `claims` were made anew, in an order that does not depend on when."""
    others = (row for row in stored if row.claim not in claims)
    # What does not apply stands before what does.
    return sorted([*others, *rows], key=lambda row: [(cell is not None, cell or 0) for cell in row.key])


def _effects(part: Part) -> Numbers:
    return np.asarray(part.numerators.sum(axis=1) / part.denominators.sum())


def _resampled(part: Part, seed: Seed, number: int, resamples: int) -> Numbers:
    """The effects of every resample of a part's units, (resamples, effects)."""
    own = (*(seed if isinstance(seed, Sequence) else (seed,)), number)
    return resampled_ratios(part.numerators, part.denominators, resamples, own, part.strata)
