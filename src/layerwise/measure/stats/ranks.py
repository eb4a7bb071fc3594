"""Rank correlation of two orders of the layers, optionally with a third held fixed.

    spearman   Pearson's correlation of the ranks
    given      the partial rank correlation: residuals of both ranks on the ranks of the third

The interval is Fisher's with variance (1 + r^2 / 2) / (n - 3) (Bonett and Wright 2000), one layer fewer with a third,
and all of -1..1 below two degrees of freedom. The null shuffles the layers of one of the two (of the residuals:
Freedman and Lane 1983).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import special, stats

from layerwise.measure.stats.statistics import Numbers, Seed

MIN_LAYERS = 4
"""Below this there is no middle to compare with the ends, and a ranking says nothing that chance would not."""

MIN_FREEDOM = 2

MAX_CORRELATION = 0.99
"""A perfect order among few layers is no proof of a perfect order: its interval starts from here."""

ROUNDING = 1e-9


def center_ranks(values: ArrayLike) -> Numbers:
    ranks = stats.rankdata(np.asarray(values, dtype=np.float64), axis=-1)
    return np.asarray(ranks - ranks.mean(axis=-1, keepdims=True))


def normalize_ranks(values: ArrayLike) -> Numbers:
    centred = center_ranks(values)
    norms = np.linalg.norm(centred, axis=-1, keepdims=True)
    return np.divide(centred, norms, out=np.zeros_like(centred), where=norms > 0)


@dataclass(frozen=True, slots=True)
class RankCorrelation:
    """A rank correlation in -1..1 with its 95 % interval, its two-sided permutation p, and the band of the null."""

    value: float
    low: float
    high: float
    p: float
    null_low: float
    null_high: float


def rank_correlation(
    left: ArrayLike, right: ArrayLike, *, given: ArrayLike | None = None, seed: Seed = 0, shuffles: int = 2000
) -> RankCorrelation | None:
    """Return the rank correlation of `left` and `right`, shape (layers,), optionally with `given` held fixed.

    It is `None` for fewer than 4 layers or constant values, and 0 if `given` explains all ranks of one of the two.

    >>> rank_correlation([1, 2, 3, 4, 5], [2, 4, 6, 8, 100]).value
    1.0
    """
    pair = [np.asarray(values, dtype=np.float64) for values in (left, right)]
    if len(pair[0]) < MIN_LAYERS:
        return None
    ranks = [center_ranks(values) for values in pair]
    freedom = len(ranks[0]) - 3 - (given is not None)
    if any(np.ptp(each) == 0 for each in ranks):
        return None
    if given is not None:
        held = center_ranks(given)
        squares = float(held @ held)
        ranks = [each if squares == 0 else each - held * (each @ held / squares) for each in ranks]
        if any(np.ptp(each) < ROUNDING for each in ranks):
            return RankCorrelation(0.0, *fisher_interval(0.0, freedom), p=1.0, null_low=0.0, null_high=0.0)
    unit = [each / np.linalg.norm(each) for each in ranks]
    value = float(np.clip(np.round(unit[0] @ unit[1], 12), -1.0, 1.0))
    draw = np.random.default_rng(seed)
    null = draw.permuted(np.tile(unit[1], (shuffles, 1)), axis=1) @ unit[0]
    p = (1 + int((np.abs(null) >= abs(value) - ROUNDING).sum())) / (1 + shuffles)
    low, high = fisher_interval(value, freedom)
    null_low, null_high = (float(bound) for bound in np.quantile(null, [0.025, 0.975]))
    return RankCorrelation(value, low, high, p, null_low, null_high)


def fisher_interval(value: float, freedom: int) -> tuple[float, float]:
    """Return the 95 % interval of a rank correlation; `freedom` is the number of layers less 3.

    >>> [round(bound, 2) for bound in fisher_interval(1.0, 3)]
    [0.85, 1.0]
    """
    if freedom < MIN_FREEDOM:
        return -1.0, 1.0
    middle = np.arctanh(np.clip(value, -MAX_CORRELATION, MAX_CORRELATION))
    reach = special.ndtri(0.975) * np.sqrt((1 + value**2 / 2) / freedom)
    return float(min(value, np.tanh(middle - reach))), float(max(value, np.tanh(middle + reach)))
