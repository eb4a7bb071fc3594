"""Estimates with intervals from Student's t, optionally corrected for skewness."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

Numbers = NDArray[np.float64]
Value = TypeVar("Value", float, Numbers)

Bounded = tuple[float, float | None, float | None]
"""A value and the bounds of its interval, which are None if it has no interval."""

POWER = 0.8
"""Statistical power for which minimum detectable effects are computed."""


@dataclass(frozen=True, slots=True)
class SampleEstimate(Generic[Value]):
    """An estimate, or arrays of them, with interval bounds, standard error and degrees of freedom.

    `skewness` is the third cumulant of the estimate divided by error^3. Tests and intervals are corrected for it only
    where the correction makes them more conservative.
    """

    value: Value
    low: Value
    high: Value
    error: Value
    freedom: Value
    skewness: Value | float = 0.0

    @classmethod
    def student(
        cls, value: Value, error: Value, freedom: Value, level: float = 0.95, skewness: Value | float = 0.0
    ) -> SampleEstimate[Value]:
        reach = student_quantile(0.5 + level / 2, freedom)
        if not np.any(skewness):
            return cls(value, value - reach * error, value + reach * error, error, freedom, skewness)
        low, high = (value - invert_hall_transform(side * reach, skewness) * error for side in (1, -1))
        return cls(value, low, high, error, freedom, skewness)

    def p(self) -> Numbers:
        sign = np.where(np.asarray(self.value) > 0, -1.0, 1.0)
        return self._tail(sign, np.asarray(self.value) == 0, sides=2)

    def p_below(self) -> Numbers:
        return self._tail(np.ones(()), np.asarray(self.value) >= 0, sides=1)

    def _tail(self, sign: Numbers, if_certain: ArrayLike, sides: int) -> Numbers:
        error = np.asarray(self.error)
        t = np.asarray(self.value) / np.where(error == 0, 1.0, error)
        furthest = np.maximum(sign * t, sign * hall_transform(t, self.skewness))
        tail = np.minimum(1.0, sides * special.stdtr(self.freedom, furthest))
        return np.asarray(np.where(error == 0, if_certain, tail), dtype=np.float64)

    def detectable(self, comparisons: float = 1) -> Numbers:
        """Return the effect that is detected with 80 % power at level 5 % / `comparisons`."""
        return np.asarray(t_factor(np.asarray(self.freedom), comparisons) * self.error)

    def row(self) -> tuple[float, float, float]:
        value, low, high = (float(np.squeeze(each)) for each in (self.value, self.low, self.high))
        return value, low, high

    def each(self: SampleEstimate[Numbers]) -> list[SampleEstimate[float]]:
        skewness = np.broadcast_to(np.asarray(self.skewness, dtype=np.float64), self.value.shape)
        columns = (self.value, self.low, self.high, self.error, self.freedom, skewness)
        return [SampleEstimate(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]


def student_quantile(share: float, freedom: Value) -> Value:
    """Return a quantile of Student's t, equal to `scipy.stats.t.ppf` to the bit but 100 times as fast.

    >>> round(student_quantile(0.975, 9), 3)
    2.262
    """
    quantile: Value = special.stdtrit(freedom, share)
    return quantile if isinstance(quantile, np.ndarray) else float(quantile)


def hall_transform(t: ArrayLike, skewness: ArrayLike) -> Numbers:
    """Transform a t statistic to a nearly symmetric one (Hall 1992, JRSS B 54).

        t + A t^2 / 3 + A^2 t^3 / 27 + A / 6        A is the skewness of the estimate

    >>> hall_transform(-3.0, 0.5).round(3), hall_transform(3.0, 0.5).round(3)
    (np.float64(-1.667), np.float64(4.833))
    """
    values, third = np.asarray(t, dtype=np.float64), np.asarray(skewness, dtype=np.float64)
    return np.asarray(values + third * values**2 / 3 + third**2 * values**3 / 27 + third / 6)


def invert_hall_transform(z: ArrayLike, skewness: ArrayLike) -> Any:
    """Return the t statistic that `hall_transform` maps to `z`, or `z` itself if `z` is further from zero.

    >>> float(invert_hall_transform(-1.667, 0.5).round(2)), float(invert_hall_transform(1.667, 0.5).round(2))
    (-3.0, 1.67)
    """
    bound, third = np.asarray(z, dtype=np.float64), np.asarray(skewness, dtype=np.float64)
    some = np.where(np.abs(third) > 1e-9, third, 1e-9)
    t = 3 / some * (np.cbrt(1 + some * (bound - third / 6)) - 1)
    return np.where(np.abs(third) > 1e-9, np.sign(bound) * np.maximum(np.abs(bound), np.sign(bound) * t), bound)[()]


def skewness_factor(units: ArrayLike) -> Numbers:
    """Return min(2, 1 + (16 / units)^2), the factor by which estimates of skewness are enlarged in small samples.

    The factor was chosen by simulation so that tests of 30 plans with exponential effects on 16 documents keep their
    error rate (see `tests/measure/stats/test_statistics.py`).
    """
    return np.minimum(2.0, 1 + np.square(16 / np.asarray(units, dtype=np.float64)))


def satterthwaite(variance: Numbers, squares: Numbers) -> Numbers:
    """Return Satterthwaite's degrees of freedom, `variance`^2 / `squares`.

    `variance` is a sum of variances v with f degrees of freedom each, and `squares` is the sum of v^2 / f.
    """
    return np.divide(np.square(variance), squares, out=np.full(np.shape(variance), 1e6), where=squares > 0)


def t_factor(freedom: Value, comparisons: float, alpha: float = 0.05) -> Value:
    return student_quantile(1 - alpha / (2 * comparisons), freedom) + student_quantile(POWER, freedom)
