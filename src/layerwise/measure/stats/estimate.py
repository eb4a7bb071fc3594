"""A number with its interval, and Student's t behind it: `layerwise.measure.stats.statistics` makes them of units."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

Numbers = NDArray[np.float64]
Value = TypeVar("Value", float, Numbers)

POWER = 0.8
"""How often an effect at the printed resolution is found."""


@dataclass(frozen=True, slots=True)
class Estimate(Generic[Value]):
    """A number, or one for each plan of shape (plans,): value, interval, standard error and its degrees of freedom."""

    value: Value
    low: Value
    high: Value
    error: Value
    freedom: Value

    @classmethod
    def student(cls, value: Value, error: Value, freedom: Value, level: float = 0.95) -> Estimate[Value]:
        """Student's interval at `level`: value +- t * error."""
        reach = student(0.5 + level / 2, freedom) * error
        return cls(value, value - reach, value + reach, error, freedom)

    def p(self) -> Numbers:
        """The two-sided p-value of Student's test against no effect."""
        return self._tail(-np.abs(self.value), np.asarray(self.value) == 0, sides=2)

    def p_below(self) -> Numbers:
        """The one-sided p-value of Student's test against an effect of zero or more."""
        return self._tail(np.asarray(self.value), np.asarray(self.value) >= 0, sides=1)

    def _tail(self, value: Numbers, if_certain: ArrayLike, sides: int) -> Numbers:
        error = np.asarray(self.error)
        tail = sides * special.stdtr(self.freedom, value / np.where(error == 0, 1.0, error))
        return np.asarray(np.where(error == 0, if_certain, tail), dtype=np.float64)

    def detectable(self, comparisons: float = 1) -> Numbers:
        """The effect that Holm's first step of so many comparisons finds with 80 % power."""
        return np.asarray(t_factor(np.asarray(self.freedom), comparisons) * self.error)

    def row(self) -> tuple[float, float, float]:
        """Value, low and high, of a single one."""
        value, low, high = (float(np.squeeze(each)) for each in (self.value, self.low, self.high))
        return value, low, high

    def each(self: Estimate[Numbers]) -> list[Estimate[float]]:
        """Of several plans those of each by itself."""
        columns = (self.value, self.low, self.high, self.error, self.freedom)
        return [Estimate(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]


def student(share: float, freedom: Value) -> Value:
    """The quantile of Student's t: `scipy.stats.t.ppf` gives the same bits in a hundred times the time.

    >>> round(student(0.975, 9), 3)
    2.262
    """
    quantile: Value = special.stdtrit(freedom, share)
    return quantile if isinstance(quantile, np.ndarray) else float(quantile)


def satterthwaite(variance: Numbers, squares: Numbers) -> Numbers:
    """Return the degrees of freedom (sum v)^2 / sum (v^2 / f) of a sum of variances v; `squares` is the denominator."""
    return np.divide(np.square(variance), squares, out=np.full(np.shape(variance), 1e6), where=squares > 0)


def t_factor(freedom: Numbers, comparisons: float, alpha: float = 0.05, power: float = POWER) -> Numbers:
    """How many standard errors make an effect that a test at `alpha / comparisons` finds with probability `power`."""
    return student(1 - alpha / (2 * comparisons), freedom) + student(power, freedom)


def median_interval(values: Sequence[float], level: float = 0.95) -> tuple[float, float]:
    """Return the order statistics between which the median lies in at least `level` of draws.

    Like `scipy.stats.quantile_test`, but a thousand times faster.

    >>> median_interval([5.0, 1.0, 4.0, 2.0, 3.0, 6.0])
    (1.0, 6.0)
    """
    from scipy import stats  # a second, for a few readers

    ordered = sorted(values)
    outside = int(stats.binom.ppf((1 - level) / 2, len(ordered), 0.5))
    # `outside` is the least count whose probability reaches the tail; one fewer stays below it.
    rank = max(0, outside - 1)
    return ordered[rank], ordered[-1 - rank]
