"""A number with its confidence interval, which findings read from a row."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from layerwise.results.rows import Score

Position = Literal["above", "below", "within", "open"]
"""Position of an interval: inside the margin (`within`), above zero, below zero, or on both sides of it (`open`)."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number and its confidence interval.

    If there is no interval, the bounds are infinite, so that every comparison is inconclusive. `error` is the standard
    error, `mde` the minimum effect that is detected with a power of 80 %, and `tokens` the number of tokens that were
    scored.
    """

    value: float
    low: float = -math.inf
    high: float = math.inf
    error: float | None = None
    degrees_of_freedom: float | None = None
    mde: float | None = None
    tokens: int | None = None

    @classmethod
    def read(cls, score: Score) -> Estimate:
        bounds = (-math.inf, math.inf) if score.low is None or score.high is None else (score.low, score.high)
        return cls(score.value, *bounds, mde=score.mde, tokens=score.tokens)

    @classmethod
    def read_bounded(cls, score: Score | None) -> Estimate | None:
        """Read the number and the interval of a row, or return None if either is missing."""
        return None if score is None or score.low is None or score.high is None else cls.read(score)

    @property
    def has_interval(self) -> bool:
        return math.isfinite(self.low) and math.isfinite(self.high)

    def is_above(self, bound: float = 0.0) -> bool:
        return self.low > bound

    def is_below(self, bound: float = 0.0) -> bool:
        return self.high < bound

    def is_within(self, margin: float) -> bool:
        """Check whether the interval is inside (-margin, +margin), which shows that the effect is negligible."""
        return -margin < self.low and self.high < margin

    def locate(self, margin: float = 0.0) -> Position:
        """Return where the interval is, if effects smaller than `margin` do not count.

        >>> Estimate(0.2, 0.1, 0.3).locate(), Estimate(0.2, 0.1, 0.3).locate(0.5), Estimate(0.2).locate(0.4)
        ('above', 'within', 'open')
        """
        if self.is_within(margin):
            return "within"
        return "above" if self.is_above() else "below" if self.is_below() else "open"

    def scale(self, factor: float) -> Estimate:
        """Multiply the number, its interval and its errors by a factor.

        >>> Estimate(0.2, 0.1, 0.4).scale(-2.0)
        Estimate(value=-0.4, low=-0.8, high=-0.2, error=None, degrees_of_freedom=None, mde=None, tokens=None)
        """
        low, high = sorted((factor * self.low, factor * self.high))
        error, mde = (each and abs(factor) * each for each in (self.error, self.mde))
        return replace(self, value=factor * self.value, low=low, high=high, error=error, mde=mde)

    def widen(self, factor: float) -> Estimate:
        """Make the interval `factor` times as wide, for example to correct for several comparisons.

        >>> Estimate(0.2, 0.1, 0.4).widen(2.0).low
        0.0
        """
        low, high = (self.value + factor * (bound - self.value) for bound in (self.low, self.high))
        return replace(self, low=low, high=high)

    def clip(self, least: float, most: float) -> Estimate:
        """Limit the bounds of the interval to the range of possible values.

        >>> Estimate(0.5, -1.5, 2.5).clip(-1.0, 1.0).low
        -1.0
        """
        return replace(self, low=max(least, self.low), high=min(most, self.high)) if self.has_interval else self

    def exponentiate(self) -> Estimate:
        """Return e to the power of the number, to turn a log ratio into a ratio.

        >>> Estimate(0.0, -1.0, math.log(2.0)).exponentiate().high
        2.0
        """
        low, value, high = (math.exp(min(each, 50.0)) for each in (self.low, self.value, self.high))
        mde = None if self.mde is None else math.exp(min(self.mde, 50.0))
        return replace(self, value=value, low=low, high=high if self.has_interval else math.inf, mde=mde)

    def minus(self, other: Estimate | float) -> Estimate:
        """Subtract a number or an estimate. The intervals of two estimates are combined as if they were independent.

        >>> Estimate(1.0, 0.7, 1.3).minus(Estimate(0.0, -0.4, 0.4)).low, Estimate(0.75, 0.5, 1.0).minus(0.25).low
        (0.5, 0.25)
        """
        if not isinstance(other, Estimate):
            return replace(self, value=self.value - other, low=self.low - other, high=self.high - other)
        below = math.hypot(self.value - self.low, other.high - other.value)
        above = math.hypot(self.high - self.value, other.value - other.low)
        value = self.value - other.value
        return Estimate(value, value - below, value + above)


def estimate_tokens_needed(score: Score, wanted: float | None = None) -> int | None:
    """Return the number of tokens needed to detect an effect of `wanted` nats; None if unknown or already reached.

        tokens = tokens read * (mde / effect)^2

    By default, `wanted` is the observed effect.

    >>> estimate_tokens_needed(Score("search", "above_chosen", 0.01, mde=0.02, tokens=1000))
    4000
    """
    effect = score.value if wanted is None else wanted
    if not effect or score.mde is None or score.tokens is None:
        return None
    needed = round(score.tokens * (score.mde / effect) ** 2, -2)
    return int(needed) if math.isfinite(needed) and needed > score.tokens else None


def is_extreme(score: Score, others: Iterable[Score]) -> bool:
    """Check that the lowest or highest of several effects is significantly so: its interval overlaps no other.

    The two-sided test of a difference from the extreme estimate needs no correction for having selected it (Hung and
    Fithian 2019, Annals of Statistics 47, 758-782), and intervals that do not overlap are a stricter criterion.

    >>> effects = [Score("effect", "delta_nll", value, value - 0.2, value + 0.2) for value in (0.1, 0.3, 2.0)]
    >>> is_extreme(effects[2], effects[:2]), is_extreme(effects[0], effects[1:])
    (True, False)
    """
    own = Estimate.read(score)
    return all(own.high < other.low or own.low > other.high for other in map(Estimate.read, others))
