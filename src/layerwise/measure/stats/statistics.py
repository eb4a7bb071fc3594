"""Intervals and tests for paired differences, on arrays of shape (plans, units).

    effect[p] = sum_u numerator[p, u] / sum_u denominator[u]        e.g. extra nats of plan p per scored token

A unit is a document or window, not a token. Units are resampled jointly for all plans. Random draws depend only on
`seed` and the number of units.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from layerwise.errors import MeasureError
from layerwise.measure.stats.estimate import (
    POWER,
    SampleEstimate,
    invert_hall_transform,
    skewness_factor,
    student_quantile,
    t_factor,
)
from layerwise.measure.stats.estimate import Numbers as Numbers

Seed = int | Sequence[int]
Key = TypeVar("Key", bound=Hashable)
StratumLabels = NDArray[np.intp]
"""The index of the stratum of every unit, shape (units,)."""

_CELLS = 1 << 20

_COLUMNS = 256

_SAMPLES = 8_192

ALPHA = 0.05
LEVEL = 0.95

FLIPS_PER_PLAN = 40
"""Number of sign flips per plan, enough for the smallest p-value to stay significant after Holm's correction."""

MAX_SIMULATED_UNITS = 128
"""Number of units from which `minimum_detectable_effect` assumes the power of Student's t test."""


@dataclass(frozen=True, slots=True)
class SignFlips:
    """The result of `sign_flips`.

    `p` has the two-sided p-values, (plans,). `critical` is the 95 % quantile, over flips, of the largest
    |effect| / standard error among the plans.
    """

    p: Numbers
    critical: float


def ratio(numerators: ArrayLike, denominators: ArrayLike) -> Numbers:
    """Sum numerators (plans, units) and denominators (units,) over units, and divide the sums: shape (plans,).

    >>> ratio([[1.0, 2.0], [0.0, -3.0]], [2.0, 4.0]).tolist()
    [0.5, -0.5]
    """
    above, below = _check_units(numerators, denominators)
    return np.asarray(above.sum(axis=1) / below.sum())


def standard_error(numerators: ArrayLike, denominators: ArrayLike, strata: StratumLabels | None = None) -> Numbers:
    """Compute the linearized standard error of `ratio`, shape (plans,) (Cochran 1977, 2.11 and 5.3).

    se[p] = sqrt(sum_h n_h / (n_h - 1) sum_{u in h} (numerator[p, u] - ratio_h[p] * denominator[u])^2)
            / sum_u denominator[u]
    """
    return _Spread.from_units(*_check_units(numerators, denominators), strata).error


def student_interval(
    numerators: ArrayLike, denominators: ArrayLike, *, strata: StratumLabels | None = None
) -> SampleEstimate[Numbers]:
    """Return each plan's `ratio` with a Student t interval, ratio +- t * standard error.

    The degrees of freedom are units - 1, or Satterthwaite's if there are `strata`. Simulated coverage of nominal 95 %,
    for log-normal unit lengths (sigma 1) and 8, 16, 40 and 148 units:

        normal effects         87, 89, 92, 94 %        (`paired_bootstrap`: 93, 93, 93, 94 %)
        exponential effects    81, 85, 89, 92 %        (`paired_bootstrap`: 89, 90, 91, 93 %)

    Use `skewed_interval` for decisions.
    """
    above, below = _check_units(numerators, denominators)
    spread = _Spread.from_units(above, below, strata)
    return SampleEstimate.student(ratio(above, below), spread.error, spread.freedom)


def skewed_interval(
    numerators: ArrayLike, denominators: ArrayLike, *, strata: StratumLabels | None = None
) -> SampleEstimate[Numbers]:
    """Return intervals like `student_interval`, corrected for skewness. Use them for decisions at small levels.

    The standard error is the jackknife's, over residuals r_u / (1 - d_u / sum d) with the denominators d. The degrees
    of freedom are those of (sum d)^2 / sum d^2 effective units (Carter, Schnepel and Steigerwald 2017), or of a third
    of the units if that is more. The skewness is estimated as if the residuals, divided by a power of d, were
    identically distributed, and multiplied by `skewness_factor`. In simulations with skewness 2, the family-wise error
    rate over 30 plans is 7 % or less, except for 16 units whose residuals do not grow with d (9 %), and for residuals
    that grow faster than d (12 %).
    """
    above, below = _check_units(numerators, denominators)
    third, second = np.zeros((2, len(above)))
    variances, counts = [], []
    for own in _split_strata(strata, below.size):
        part, length = above[:, own], below[own]
        residuals = part - ratio(part, length)[:, None] * length
        shares = length / length.sum()
        jackknife = np.square(residuals / (1 - shares)).sum(axis=1)
        variances.append(jackknife * (length.size - 1) / length.size)
        counts.append(max(2.0, (length.size + 2) / 3, 1 / np.square(shares).sum()))
        square, cube = _estimate_cumulants(residuals, length)
        second, third = second + square, third + cube * skewness_factor(length.size)
    freedom, _ = stratified_freedom(np.array(variances), counts)
    value, error = ratio(above, below), np.sqrt(np.sum(variances, axis=0)) / below.sum()
    skewness = np.divide(third, second**1.5, out=np.zeros(len(above)), where=second > 0)
    return SampleEstimate.student(value, error, freedom, skewness=skewness)


def _estimate_cumulants(residuals: Numbers, lengths: Numbers) -> tuple[Numbers, Numbers]:
    """Return the second and third cumulants of the sum of residuals, (plans,) each.

    Residuals are assumed to grow like a power of `lengths`. The exponent is the slope of log |residual| on log length,
    clipped to 0..1.
    """
    logs = np.log(lengths) - np.log(lengths).mean()
    largest = np.abs(residuals).max(axis=1, keepdims=True)
    sizes = np.log(np.maximum(np.abs(residuals), 1e-9 * np.where(largest > 0, largest, 1.0)))
    spread = np.square(logs).sum()
    power = np.clip(sizes @ logs / spread, 0.0, 1.0) if spread > 0 else np.ones(len(residuals))
    scale = lengths ** power[:, None]
    scaled = residuals / scale
    scaled -= scaled.mean(axis=1, keepdims=True)
    square, cube = np.square(scaled).mean(axis=1), (scaled**3).mean(axis=1)
    return square * np.square(scale).sum(axis=1), cube * (scale**3).sum(axis=1)


def mean_interval(
    numerators: ArrayLike, denominators: ArrayLike | None = None, min_units: int = 2
) -> tuple[float, float | None, float | None]:
    """Return sum(numerators) / sum(denominators), or the mean of `numerators`, with a Student t interval.

    The bounds are None for fewer than `min_units` numerators or if all individual ratios are equal.

    >>> mean_interval([1.0, 1.0, 1.0]), mean_interval([3.0], [2.0])
    ((1.0, None, None), (1.5, None, None))
    """
    above = np.asarray(numerators, dtype=np.float64)
    below = np.ones(above.size) if denominators is None else np.asarray(denominators, dtype=np.float64)
    if above.size < min_units or are_equal(above[None], below):
        return float(above.sum() / below.sum()), None, None
    return student_interval(above, below).row()


def paired_bootstrap(
    numerators: ArrayLike,
    denominators: ArrayLike,
    *,
    seed: Seed,
    resamples: int = 10_000,
    strata: StratumLabels | None = None,
) -> SampleEstimate[Numbers]:
    """Return each plan's `ratio` with an expanded percentile bootstrap interval over units (Hesterberg 2015).

    All plans share the resampled units (documents or windows). Strata are resampled separately. If the numerators of a
    plan are proportional to the denominators, its interval has width zero.
    """
    above, below = _check_units(numerators, denominators)
    spread = _Spread.from_units(above, below, strata)
    tails = _tail(LEVEL, spread.freedom, spread.shortfall)
    bounds = np.empty((2, len(above)))
    for start in range(0, len(above), _COLUMNS):
        each = resample_strata(above[start : start + _COLUMNS], below, resamples, seed, strata)
        drawn = np.asarray(sum(stratum.drawn for stratum in each))
        for plan, column in enumerate(drawn.T, start):
            bounds[:, plan] = np.quantile(column, [tails[plan], 1 - tails[plan]])
    return SampleEstimate(ratio(above, below), bounds[0], bounds[1], spread.error, spread.freedom)


@dataclass(frozen=True, slots=True)
class ResampledStratum:
    """A stratum's contribution to each plan's ratio: `value` (plans,) as observed, `drawn` (resamples, plans)."""

    units: int
    value: Numbers
    drawn: Numbers


def resample_strata(
    numerators: Numbers, denominators: Numbers, resamples: int, seed: Seed, strata: StratumLabels | None = None
) -> Iterator[ResampledStratum]:
    generator = np.random.default_rng(seed)
    for own in _split_strata(strata, denominators.size):
        above, below = numerators[:, own].T, denominators[own]
        draws = draw_counts(below.size, resamples, generator)
        ratios = np.concatenate([counts @ above / (counts @ below)[:, None] for counts in draws])
        weight = below.sum() / denominators.sum()
        yield ResampledStratum(below.size, above.sum(axis=0) / denominators.sum(), ratios * weight)


def sign_flips(
    differences: ArrayLike, *, seed: Seed, flips: int = 10_000, strata: StratumLabels | None = None
) -> SignFlips:
    """Test whether each plan's sum of `differences`, (plans, units), is zero, by flipping the signs of units.

        p = (1 + #{flips with T(s d[p]) >= T(d[p])}) / (1 + flips)        T(d) = |sum_u d[u]| / its standard error

    If there are at most `flips` distinct flips, 2^(units - 1), each is used once and p is the fraction of flips with
    T(s d[p]) >= T(d[p]). The test is exact for effects that are symmetric around zero. `strata` only affect the
    standard error. All plans share the signs, and the critical value is that of the largest T over plans (Westfall and
    Young 1993, 2.5).
    """
    values = np.atleast_2d(np.asarray(differences, dtype=np.float64))
    plans, units = values.shape
    members = _split_strata(strata, units)
    all_flips = 2 ** (units - 1) <= flips
    count = 2 ** (units - 1) if all_flips else flips
    reached = np.zeros(plans)
    largest = np.zeros(count)
    for start in range(0, plans, _COLUMNS):
        chosen = slice(start, start + _COLUMNS)
        own = [values[chosen, stratum] for stratum in members]
        # The tolerance keeps flips that reproduce the observed sum up to rounding.
        threshold = _normalized_statistic(own, np.ones((1, units)), members)[0] - 1e-12
        done = 0
        for signs in _enumerate_signs(units) if all_flips else _draw_signs(units, flips, seed):
            flipped = _normalized_statistic(own, signs, members)
            reached[chosen] += (flipped >= threshold).sum(axis=0)
            rows = slice(done, done + len(signs))
            largest[rows] = np.maximum(largest[rows], flipped.max(axis=1))
            done += len(signs)
    p = reached / count if all_flips else (1 + reached) / (1 + count)
    return SignFlips(p, _studentize(float(np.quantile(largest, LEVEL, method="higher")), units))


@dataclass(frozen=True, slots=True)
class EffectTest:
    """Two-sided p-values, half-widths of the simultaneous null band, and minimum detectable effects, (plans,) each."""

    p: Numbers
    band: Numbers
    mde: Numbers


def flips_can_decide(units: int, comparisons: int) -> bool:
    """Check that the smallest p-value of sign flips, 2^(1 - units), remains significant after Bonferroni's correction.

    >>> flips_can_decide(8, 6), flips_can_decide(8, 7)
    (True, False)
    """
    return 2.0 ** (1 - units) * comparisons <= ALPHA


def assess_effects(
    differences: ArrayLike,
    denominators: ArrayLike,
    *,
    seed: Seed,
    comparisons: int | None = None,
    flips: int = 10_000,
    strata: StratumLabels | None = None,
) -> EffectTest:
    """Test whether each plan's effect is zero: the `ratio` of `differences` (plans, units) and `denominators` (units,).

    The p-value is the larger of two: one from `sign_flips`, which is exact for symmetric effects, and one from a t test
    corrected for skewness (`skewed_interval`). Sign flips alone would have a family-wise error rate of 25 % over 30
    plans if the documents had a skewness of 2. If there are too few units for sign flips (`flips_can_decide`), only the
    t test is used.

    The null band contains all plans without effect in 95 % of studies. It is a multiple of the standard error of the
    summed differences, because the standard error of the ratio is too small if document lengths differ strongly.

    `comparisons` is the number of simultaneous tests (default: the number of plans), and `flips` the minimum number of
    sign flips.
    """
    above, below = _check_units(differences, denominators)
    count = len(above) if comparisons is None else comparisons
    estimate = skewed_interval(above, below, strata=strata)
    p, critical = estimate.p(), student_quantile(1 - ALPHA / (2 * max(1, count)), estimate.freedom)
    if flips_can_decide(below.size, count):
        flipped = sign_flips(above, seed=seed, flips=max(flips, FLIPS_PER_PLAN * count), strata=strata)
        p, critical = np.maximum(p, flipped.p), np.full(len(above), flipped.critical)
    summed = standard_error(above, np.ones(below.size), strata) * below.size / below.sum()
    mde = minimum_detectable_effect(estimate.error, estimate.freedom + 1, comparisons=max(1, count))
    return EffectTest(p, np.asarray(invert_hall_transform(critical, -np.abs(estimate.skewness)) * summed), mde)


def are_equal(numerators: Numbers, denominators: Numbers) -> bool:
    """Check whether the ratios of each row, (rows, units) / (units,), are equal, so that they have no interval."""
    ratios = numerators / denominators
    return bool((np.ptp(ratios, axis=1) <= 1e-12 * np.abs(ratios).max(axis=1)).all())


def holm(p: ArrayLike) -> Numbers:
    """Adjust p-values for the family-wise error rate (Holm 1979), ignoring NaN.

    >>> holm([0.01, np.nan, 0.04, 0.03]).round(2).tolist()
    [0.03, nan, 0.06, 0.06]
    """
    values = np.asarray(p, dtype=np.float64)
    tested = np.argsort(values, kind="stable")[: np.count_nonzero(~np.isnan(values))]
    adjusted = np.full_like(values, np.nan)
    steps = values[tested] * np.arange(tested.size, 0, -1)
    adjusted[tested] = np.minimum(1.0, np.maximum.accumulate(steps))
    return adjusted


def holm_by_key(p: Mapping[Key, float | None]) -> dict[Key, float]:
    """Adjust the p-values of a mapping (`holm`), omitting keys whose p-value is None.

    >>> holm_by_key({"a": 0.01, "b": None, "c": 0.03})
    {'a': 0.02, 'c': 0.03}
    """
    tested = {key: value for key, value in p.items() if value is not None}
    return dict(zip(tested, holm(list(tested.values())).tolist(), strict=True))


def minimum_detectable_effect(errors: ArrayLike, units: ArrayLike, *, comparisons: float = 1) -> Numbers:
    """Return the smallest true effect that `assess_effects` detects with 80 % power at the level ALPHA / `comparisons`.

    It is (t[1 - ALPHA / (2 comparisons)] + t[0.8]) standard errors, with units - 1 degrees of freedom. For fewer than
    128 units the factor is simulated instead, because the correction for skewness reduces the power. `units` is one
    number, or one per error. It is the effective number of units if they differ in length.
    """
    counts = np.asarray(units, dtype=np.float64)
    if (counts < 2).any():
        raise MeasureError(
            f"A minimum detectable effect needs at least 2 documents or windows, got {counts.min():g}. "
            "Use a longer text."
        )
    distinct, at = np.unique(np.round(counts), return_inverse=True)
    level = ALPHA / (2 * comparisons)
    factors = np.array([_detectable_factor(int(each), level) for each in distinct])
    return np.asarray(factors[at].reshape(counts.shape) * np.asarray(errors, dtype=np.float64))


def _detectable_factor(units: int, level: float) -> float:
    if units >= MAX_SIMULATED_UNITS:
        return t_factor(units - 1.0, 1, 2 * level)
    return float(np.quantile(_needed_sizes(units, level), POWER))


@lru_cache(maxsize=1024)
def _needed_sizes(units: int, level: float) -> Numbers:
    """Simulate, for normal samples, the smallest significant effect in standard errors (sign flips agree to 1 %)."""
    sums, squares, cubes = (total[:, units - 1] for total in _normal_sums())
    mean = sums / units
    variance = squares / units - mean**2
    skewness = (cubes / units - 3 * mean * variance - mean**3) / (variance**1.5 * np.sqrt(units))
    deviation = np.sqrt(variance * units / (units - 1))
    bound = student_quantile(1 - level, units - 1.0)
    needed = invert_hall_transform(bound, skewness * skewness_factor(units))
    return np.sort(needed * deviation - np.sqrt(units) * mean)


@lru_cache(maxsize=1)
def _normal_sums() -> tuple[Numbers, ...]:
    drawn = np.random.default_rng(0).normal(size=(_SAMPLES, MAX_SIMULATED_UNITS))
    return tuple(power.cumsum(axis=1) for power in (drawn, drawn**2, drawn * drawn**2))


def wilson(successes: ArrayLike, trials: float) -> SampleEstimate[Numbers]:
    """Return proportions p with Wilson's interval (1927), centered at (p + z^2 / 2n) / (1 + z^2 / n).

    `error` is the half-width divided by z = 1.96.
    """
    z = float(special.ndtri(0.5 + LEVEL / 2))
    share = np.asarray(successes, dtype=np.float64) / trials
    center = (share + z**2 / (2 * trials)) / (1 + z**2 / trials)
    error = np.sqrt(share * (1 - share) / trials + z**2 / (4 * trials**2)) / (1 + z**2 / trials)
    low, high = np.maximum(0.0, center - z * error), np.minimum(1.0, center + z * error)
    return SampleEstimate(share, low, high, error, np.full(share.shape, trials - 1.0))


def paired_proportions(gained: ArrayLike, lost: ArrayLike, trials: int) -> SampleEstimate[Numbers]:
    """Return (gained - lost) / trials with Bonett and Price's interval (2012).

    The interval adds one to each count, so that its width is positive even if both models agree everywhere.
    """
    more, less = np.asarray(gained, dtype=np.float64), np.asarray(lost, dtype=np.float64)
    up, down = (more + 1) / (trials + 2), (less + 1) / (trials + 2)
    error = np.sqrt((up + down - (up - down) ** 2) / (trials + 2))
    reach = float(special.ndtri(0.975)) * error
    low, high = np.maximum(-1.0, up - down - reach), np.minimum(1.0, up - down + reach)
    return SampleEstimate((more - less) / trials, low, high, error, np.full(error.shape, trials - 1.0))


def _check_units(numerators: ArrayLike, denominators: ArrayLike) -> tuple[Numbers, Numbers]:
    above = np.atleast_2d(np.asarray(numerators, dtype=np.float64))
    below = np.asarray(denominators, dtype=np.float64)
    if below.ndim != 1 or above.shape[1:] != below.shape:
        raise MeasureError(
            f"Numerators and denominators must have the shapes (plans, units) and (units,), got {above.shape} and "
            f"{below.shape}."
        )
    if below.size < 2:
        raise MeasureError(f"An interval needs at least 2 documents or windows, got {below.size}. Use a longer text.")
    if not np.isfinite(above).all() or not (below > 0).all():
        raise MeasureError("Values must be finite and token counts positive. Remove documents where they are not.")
    return above, below


@dataclass(frozen=True, slots=True)
class _Spread:
    """Standard errors of ratios, with the two results of `stratified_freedom`, (plans,) each."""

    error: Numbers
    freedom: Numbers
    shortfall: Numbers

    @classmethod
    def from_units(cls, above: Numbers, below: Numbers, strata: StratumLabels | None) -> _Spread:
        squares, counts = [], []
        for own in _split_strata(strata, below.size):
            residuals = above[:, own] - ratio(above[:, own], below[own])[:, None] * below[own]
            counts.append(residuals.shape[1])
            squares.append(np.square(residuals).sum(axis=1) * counts[-1] / (counts[-1] - 1))
        variances = np.sum(squares, axis=0)
        freedom, shortfall = stratified_freedom(np.array(squares), counts)
        return cls(np.asarray(np.sqrt(variances) / below.sum()), freedom, shortfall)


def stratified_freedom(variances: Numbers, counts: Sequence[float]) -> tuple[Numbers, Numbers]:
    """Return Satterthwaite's degrees of freedom and the true variance divided by the bootstrap's, (plans,) each.

        freedom = (sum_h v_h)^2 / sum_h (v_h^2 / (n_h - 1))        shortfall = sum_h v_h / sum_h (v_h (n_h - 1) / n_h)

    `variances` has v_h in the shape (strata, plans), and `counts` has the number of units n_h of each stratum.
    """
    units, total = np.array(counts, dtype=np.float64)[:, None], variances.sum(axis=0)
    # Without any variance the strata are weighted by their units.
    shares = np.where(total > 0, variances / np.where(total > 0, total, 1.0), units / units.sum())
    freedom = (units[0] - 1) * np.ones_like(total)
    if len(counts) > 1:
        freedom = 1 / (np.square(shares) / (units - 1)).sum(axis=0)
    return freedom, np.asarray(1 / (shares * ((units - 1) / units)).sum(axis=0))


def expanded_levels(level: float, freedom: float, shortfall: float | None = None) -> tuple[float, float]:
    """Return the lower and upper percentile level of the expanded bootstrap interval (Hesterberg 2015).

    The lower one is the normal probability below -t * sqrt(shortfall), where t is Student's quantile. `shortfall` is
    n / (n - 1) by default, for n = `freedom` + 1 units.
    """
    shortfall = (freedom + 1) / freedom if shortfall is None else shortfall
    tail = float(_tail(level, np.array(float(freedom)), np.array(shortfall)))
    return tail, 1 - tail


def _tail(level: float, freedom: Numbers, shortfall: Numbers) -> Numbers:
    return np.asarray(special.ndtr(-student_quantile(0.5 + level / 2, freedom) * np.sqrt(shortfall)))


def _split_strata(strata: StratumLabels | None, units: int) -> list[NDArray[np.intp] | slice]:
    if strata is None:
        return [slice(None)]
    labels = np.asarray(strata)
    members = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    if labels.shape != (units,) or min(each.size for each in members) < 2:
        raise MeasureError(f"strata must have a label for each of {units} units, and each twice or more, got {labels}.")
    return [slice(None)] if len(members) == 1 else list(members)


def _normalized_statistic(
    values: Sequence[Numbers], signs: Numbers, members: Sequence[NDArray[np.intp] | slice]
) -> Numbers:
    """Return a bounded form z of the T in `sign_flips`, (flips, plans): z^2 = n T^2 / (n - 1 + T^2)."""
    total, spread = np.zeros((len(signs), len(values[0]))), np.zeros((len(signs), len(values[0])))
    for own, part in zip(members, values, strict=True):
        flipped, count = signs[:, own] @ part.T, part.shape[1]
        total += flipped
        spread += (count * np.square(part).sum(axis=1) - np.square(flipped)) / (count - 1)
    units = signs.shape[1]
    below = np.maximum((units - 1) * spread + np.square(total), 0.0) / units
    return np.asarray(np.abs(total) / np.sqrt(np.where(below > 0, below, 1.0)))


def _studentize(normalized: float, units: int) -> float:
    rest = units - normalized**2
    return normalized * float(np.sqrt((units - 1) / rest)) if rest > 1e-9 * units else float("inf")


def draw_counts(units: int, resamples: int, seed: Seed | np.random.Generator) -> Iterator[Numbers]:
    """Yield bootstrap resamples in blocks (rows, units): each row counts how often each unit was drawn."""
    generator = np.random.default_rng(seed)
    for rows in _blocks(units, resamples):
        drawn = generator.integers(0, units, size=(rows, units))
        drawn += units * np.arange(rows)[:, None]
        yield np.bincount(drawn.ravel(), minlength=rows * units).reshape(rows, units).astype(np.float64)


def _enumerate_signs(units: int) -> Iterator[Numbers]:
    bits = np.arange(units)
    done = 0
    for rows in _blocks(units, 2 ** (units - 1)):
        numbers = np.arange(done, done + rows)
        yield np.where(numbers[:, None] >> bits & 1, -1.0, 1.0)
        done += rows


def _draw_signs(units: int, flips: int, seed: Seed) -> Iterator[Numbers]:
    generator = np.random.default_rng(seed)
    for rows in _blocks(units, flips):
        yield 2.0 * generator.integers(0, 2, size=(rows, units), dtype=np.int8).astype(np.float64) - 1.0


def _blocks(units: int, total: int) -> Iterator[int]:
    step = max(1, _CELLS // units)
    for start in range(0, total, step):
        yield min(step, total - start)
