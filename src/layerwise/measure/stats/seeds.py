"""Intervals over random seeds, and comparisons of two training variants paired by seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import special, stats

from layerwise.errors import MeasureError
from layerwise.measure.stats.estimate import SampleEstimate, student_quantile
from layerwise.results.rows import Score

METRIC_RANGES = {
    "accuracy": (0.0, 1.0),
    "accuracy_top5": (0.0, 1.0),
    "f1": (0.0, 1.0),
    "mcc": (-1.0, 1.0),
    "pearson": (-1.0, 1.0),
    "spearman": (-1.0, 1.0),
    "agreement": (0.0, 1.0),
    "accuracy_above": (-1.0, 1.0),
    "agreement_above": (-1.0, 1.0),
    "accuracy_lost": (-1.0, 1.0),
    "agreement_lost": (-1.0, 1.0),
}
"""The smallest and the largest possible value of bounded metrics."""


def deviation_bias(degrees: float) -> float:
    """Return c4, the expected standard deviation of a normal sample divided by the true one.

        c4(f) = sqrt(2 / f) Gamma((f + 1) / 2) / Gamma(f / 2)        f degrees of freedom

    >>> round(deviation_bias(1), 3), round(deviation_bias(8), 3)
    (0.798, 0.969)
    """
    return float(np.sqrt(2 / degrees) * np.exp(special.gammaln((degrees + 1) / 2) - special.gammaln(degrees / 2)))


Bounds = tuple[float | None, float | None]
"""The bounds of an interval; both are None if there is no interval."""


def seed_interval(values: Sequence[float], metric: str = "", over_examples: Sequence[Bounds] | None = None) -> Bounds:
    """Return the 95 % interval of the mean of `values` over seeds, clipped to the metric's range (`METRIC_RANGES`).

    `over_examples` has the interval [low_s, high_s] of each seed's value v_s over test examples. All seeds share the
    examples, so these errors do not average out (Banerjee 1960; each side separately as in Zou and Donner 2008):

        low     mean v_s - sqrt(r^2 + (mean (v_s - low_s))^2)        r = t(n - 1, 97.5 %) * sd(v) / sqrt(n)
        high    mean v_s + sqrt(r^2 + (mean (high_s - v_s))^2)

    If `over_examples` is None, this is a Student t interval, or (None, None) for a single seed or equal values.

    >>> [round(bound, 3) for bound in seed_interval([0.9, 1.0, 0.95], "accuracy")]
    [0.826, 1.0]
    >>> [round(bound, 3) for bound in seed_interval([0.5, 0.5], "accuracy", [(0.2, 0.8), (0.2, 0.8)])]
    [0.2, 0.8]
    """
    mean, reach, below, above = float(np.mean(values)), 0.0, 0.0, 0.0
    if _differ(values):
        reach = student_quantile(0.975, len(values) - 1.0) * float(stats.sem(values))
    for value, (low, high) in zip(values, over_examples or (), strict=over_examples is not None):
        if low is None or high is None:
            return None, None
        below, above = below + (value - low) / len(values), above + (high - value) / len(values)
    if over_examples is None and reach == 0:
        return None, None
    least, most = METRIC_RANGES.get(metric, (-np.inf, np.inf))
    return max(least, mean - float(np.hypot(reach, below))), min(most, mean + float(np.hypot(reach, above)))


def average_rows(rows: Sequence[Score], metric: str | None = None, **columns: Any) -> Score:
    """Average rows of several seeds, with the interval of `seed_interval`.

    The interval is clipped to the range of `metric` (default: the metric of the rows). All other columns are those of
    the first row, unless `columns` replaces them.
    """
    values = [row.value for row in rows]
    low, high = seed_interval(
        values, rows[0].metric if metric is None else metric, [(row.low, row.high) for row in rows]
    )
    return replace(rows[0], value=float(np.mean(values)), low=low, high=high, **columns)


def _differ(values: ArrayLike) -> bool:
    return bool(np.ptp(values) > 1e-12 * np.max(np.abs(values)))


@dataclass(frozen=True, slots=True)
class SeedDifference:
    """A mean difference over paired seeds.

    The interval, p-value and minimum detectable effect are None for one seed or if all differences are equal.
    """

    value: float
    seeds: int
    low: float | None = None
    high: float | None = None
    p: float | None = None
    mde: float | None = None


def seed_difference(values: Mapping[int, float], others: Mapping[int, float]) -> SeedDifference:
    """Compare `values` with `others` by a paired t test over the n seeds that both have, with differences d_s.

        value = mean d_s        low, high = value -+ t(n - 1, 97.5 %) * sd(d) / sqrt(n)

    The minimum detectable effect (80 % power) is corrected for the bias of the standard deviation of few seeds
    (`deviation_bias`). Raises `MeasureError` if `values` and `others` share no seed.

    >>> found = seed_difference({0: 2.0, 1: 3.0, 2: 4.0}, {0: 1.0, 1: 2.1, 2: 2.9})
    >>> round(found.value, 6), found.seeds, round(found.low, 3), round(found.high, 3)
    (1.0, 3, 0.752, 1.248)
    """
    seeds = sorted(set(values) & set(others))
    if not seeds:
        raise MeasureError(
            f"The compared variants must share a seed, got {sorted(values)} and {sorted(others)}. "
            "Train both with the same seeds."
        )
    differences = np.array([values[seed] - others[seed] for seed in seeds])
    mean, count = float(differences.mean()), len(seeds)
    if not _differ(differences):
        return SeedDifference(mean, count)
    error = float(differences.std(ddof=1)) / count**0.5
    estimate = SampleEstimate.student(mean, error, count - 1.0)
    mde = float(estimate.detectable()) / deviation_bias(estimate.freedom)
    return SeedDifference(mean, count, estimate.low, estimate.high, float(estimate.p()), mde)
