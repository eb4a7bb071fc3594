"""Average a number over training runs on one test set, with an interval over both seeds and test examples.

With e_s the effect of seed s of S, and d_su the influence of unit u of U on it (sum_u d_su = 0; a unit is a batch):
    variances   v = var_s(e_s) / S        w = U / (U - 1) * sum_u (mean_s d_su)^2
    interval    mean_s e_s -+ sqrt(t[S - 1]^2 v + t[U - 1]^2 w), conservative (Banerjee 1960; Owen 2007)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq

from layerwise.measure.contrasts.contrast import CONTRAST
from layerwise.measure.stats.estimate import POWER, Bounded, Numbers, student_quantile
from layerwise.measure.stats.grid import MIN_UNITS
from layerwise.measure.stats.seeds import METRIC_RANGES, deviation_bias, seed_difference
from layerwise.measure.stats.statistics import StratumLabels
from layerwise.results.rows import Score

PATTERN = "pattern"
FIRST = 2
"""The first layer that reads a source other than the embedding and the previous layer."""

UNBOUNDED, DIFFERENCE = (-np.inf, np.inf), (-1.0, 1.0)
"""Ranges of possible values: any number; a difference of two fractions, or a correlation."""


@dataclass(frozen=True, slots=True)
class Term:
    """A source of variation, such as the seed: the variance that it contributes, and its degrees of freedom."""

    variance: float
    degrees: float


@dataclass(frozen=True, slots=True)
class TrainingEstimate:
    """A number computed from `documents` examples, and its sources of variation (empty if there is no interval)."""

    value: float
    terms: tuple[Term, ...]
    documents: int

    @property
    def half(self) -> float:
        return self._root([student_quantile(0.975, term.degrees) for term in self.terms])

    @property
    def mde(self) -> float:
        """The effect detectable with 80 % power, corrected for the biased standard deviation of few units."""
        return self._root(
            [
                (student_quantile(0.975, term.degrees) + student_quantile(POWER, term.degrees))
                / deviation_bias(term.degrees)
                for term in self.terms
            ]
        )

    @property
    def p(self) -> float:
        def short(log_level: float) -> float:
            return abs(self.value) - self._root(
                [student_quantile(1 - exp(log_level) / 2, term.degrees) for term in self.terms]
            )

        least, most = -30.0, -1e-9
        if short(least) >= 0 or short(most) <= 0:
            return exp(least) if short(least) >= 0 else 1.0
        return exp(float(brentq(short, least, most)))

    def _root(self, factors: Sequence[float]) -> float:
        return float(np.sqrt(sum(f**2 * term.variance for f, term in zip(factors, self.terms, strict=True))))

    def row(self, claim: str, metric: str, task: str = "all", within: tuple[float, float] = UNBOUNDED) -> Score:
        row = Score(CONTRAST, metric, self.value, claim=claim, task=task, documents=self.documents)
        if not self.terms:
            return row
        low, high = max(within[0], self.value - self.half), min(within[1], self.value + self.half)
        return replace(row, low=low, high=high, mde=self.mde)


def average_trainings(effects: Sequence[float] | Numbers, influences: Numbers, documents: int) -> TrainingEstimate:
    """Average effects `(seeds,)`, given how much each batch of examples (unit) influences them, `(seeds, units)`.

    There is no interval for one seed or fewer than 8 units.

    >>> round(average_trainings([0.2, 0.4], np.zeros((2, 8)), documents=64).half, 3)
    1.271
    """
    effects = np.asarray(effects, dtype=np.float64)
    seeds, units = influences.shape
    value = float(effects.mean())
    if seeds < 2 or units < MIN_UNITS:
        return TrainingEstimate(value, (), documents)
    return TrainingEstimate(
        value, (compute_seed_term(effects), Term(compute_unit_variance(influences.mean(axis=0)), units - 1)), documents
    )


def average_scored(values: Numbers, counts: Numbers, batch: int, metric: str = "") -> Bounded:
    """Return the mean over seeds of sum(values) / sum(counts), both `(seeds, examples)`, with its 95 % interval.

    A unit consists of `batch` examples and is shared by all seeds. The interval is that of `average_trainings` (for one
    seed: a Student t interval over units), clipped to the range of the metric. There is none if fewer
    than 8 units have nonzero counts in every seed.
    """
    means = values.sum(axis=1) / counts.sum(axis=1)
    above, below = sum_batches(values, batch), sum_batches(counts, batch)
    kept = (below > 0).all(axis=0)
    influences = (above - means[:, None] * below)[:, kept] / below[:, kept].sum(axis=1, keepdims=True)
    value, (seeds, units) = float(means.mean()), influences.shape
    if units < MIN_UNITS:
        return value, None, None
    terms = (
        Term(compute_unit_variance(influences.mean(axis=0)), units - 1),
        *([compute_seed_term(means)] if seeds > 1 else []),
    )
    half = TrainingEstimate(value, terms, 0).half
    least, most = METRIC_RANGES.get(metric, UNBOUNDED)
    return value, max(least, value - half), min(most, value + half)


def sum_batches(values: Numbers, batch: int) -> Numbers:
    return np.add.reduceat(values, np.arange(0, values.shape[-1], batch), axis=-1)


def compute_seed_term(values: Sequence[float] | Numbers) -> Term:
    sample = np.asarray(values, dtype=np.float64)
    return Term(float(sample.var(ddof=1)) / sample.size, sample.size - 1)


def compute_strata_term(influences: Numbers, strata: StratumLabels) -> Term:
    """Return the variance due to units within `strata`. Their influences must sum to zero in each stratum.

    >>> compute_strata_term(np.array([1.0, -1.0, 2.0, -2.0]), np.array([0, 0, 1, 1]))
    Term(variance=20.0, degrees=1.4705882352941178)
    """
    own = [influences[strata == label] for label in np.unique(strata)]
    variances = np.array([compute_unit_variance(each) for each in own])
    degrees = np.array([each.size - 1.0 for each in own])
    squares = (np.square(variances) / degrees).sum()
    freedom = degrees.sum() if squares == 0 else np.square(variances.sum()) / squares
    return Term(float(variances.sum()), float(freedom))


@dataclass(frozen=True, slots=True, eq=False)
class LinearEstimate:
    """A number from one training run, and the first-order influence of each document or question on it, `(units,)`."""

    value: float
    influences: Numbers

    def __sub__(self, other: LinearEstimate) -> LinearEstimate:
        return LinearEstimate(self.value - other.value, self.influences - other.influences)

    def __truediv__(self, other: LinearEstimate) -> LinearEstimate:
        ratio = self.value / other.value
        return LinearEstimate(ratio, (self.influences - ratio * other.influences) / other.value)


def average_linear(seeds: Sequence[LinearEstimate], strata: StratumLabels) -> TrainingEstimate:
    """Average a number over seeds evaluated on the same units. There is no interval for fewer than 8 units.

    >>> estimates = [LinearEstimate(v, np.zeros(8)) for v in (0.2, 0.4)]
    >>> round(average_linear(estimates, np.zeros(8, dtype=int)).half, 6)
    1.27062
    """
    values, influences = [each.value for each in seeds], np.mean([each.influences for each in seeds], axis=0)
    if influences.size < MIN_UNITS:
        return TrainingEstimate(float(np.mean(values)), (), influences.size)
    terms = (compute_strata_term(influences, strata), *([compute_seed_term(values)] if len(seeds) > 1 else []))
    return TrainingEstimate(float(np.mean(values)), terms, influences.size)


def compute_unit_variance(influences: Numbers) -> float:
    """Return the variance of a number, given the influence of each document or batch on it. They must sum to zero."""
    return float(np.square(influences).sum()) * influences.size / (influences.size - 1)


def contrast_pattern(variant: str, alphas: ArrayLike, initial: ArrayLike) -> list[Score]:
    """Test whether layers mostly read the embedding and the previous layer, over seeds of one variant.

    The layer weights are `alphas` `(seeds, layers, sources)`, and `initial` `(layers, sources)` before training. Layer
    n reads the embedding and the previous layer with the weight mass[n] = alpha[n, 0] + alpha[n, n], and n >= 2:

        above_equal    mean_n (mass[n] - 2 / (n + 1))
        learned        mean_n (mass[n] - mass[n] before training)

    If the output of the model is a weighted sum of layers, it counts as one more layer.
    """
    weights, start = np.asarray(alphas, dtype=np.float64), np.asarray(initial, dtype=np.float64)
    if weights.shape[1] <= FIRST:
        return []
    readers = np.arange(FIRST, weights.shape[1])
    learned = _sum_mass(weights, readers)
    rows = []
    for metric, base in (("above_equal", 2.0 / (readers + 1)), ("learned", _sum_mass(start[None], readers)[0])):
        own, other = dict(enumerate(learned.mean(axis=1))), dict.fromkeys(range(len(weights)), float(base.mean()))
        gap = seed_difference(own, other)
        rows.append(
            Score(CONTRAST, metric, gap.value, gap.low, gap.high, gap.p, claim=PATTERN, task=variant, mde=gap.mde)
        )
    return rows


def _sum_mass(weights: Numbers, readers: NDArray[np.int64]) -> Numbers:
    return np.asarray(weights[:, readers, 0] + weights[:, readers, readers])
