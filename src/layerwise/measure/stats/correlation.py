"""Pearson and rank correlations with Fisher's intervals and permutation nulls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike
from scipy import special, stats

from layerwise.errors import MeasureError, near_matches
from layerwise.measure.stats.statistics import Numbers, Seed

MIN_LAYERS = 4
"""Minimum number of layers for a rank correlation."""

MAX_RANK_CORRELATION = 0.99
"""Higher rank correlations get the interval of this value, because a perfect one over few layers is not certain."""

ROUNDING = 1e-9


def pearson(scores: ArrayLike, answers: ArrayLike) -> float:
    """Return Pearson's correlation of two vectors, or 0 if either is constant.

    >>> round(pearson([0, 1, 2], [1, 3, 5]), 6), pearson([0, 1, 2], [4, 4, 4])
    (1.0, 0.0)
    """
    left, right = (_center(values) for values in (scores, answers))
    below = float(np.sqrt((left**2).sum() * (right**2).sum()))
    return float(np.clip((left * right).sum() / below, -1.0, 1.0)) if below > 0 else 0.0


def spearman(scores: ArrayLike, answers: ArrayLike) -> float:
    """Return Spearman's rank correlation of two vectors, or 0 if either is constant.

    >>> spearman([0, 1, 2], [1, 3, 100])
    1.0
    """
    return pearson(stats.rankdata(np.asarray(scores)), stats.rankdata(np.asarray(answers)))


def _center(values: ArrayLike) -> Numbers:
    array = np.asarray(values, dtype=np.float64)
    # Equal values may differ from their mean by rounding.
    return np.zeros_like(array) if np.ptp(array) == 0 else array - array.mean()


CORRELATIONS: Mapping[str, Callable[[ArrayLike, ArrayLike], float]] = MappingProxyType(
    {"pearson": pearson, "spearman": spearman}
)


def find_correlation(name: str) -> Callable[[ArrayLike, ArrayLike], float]:
    if name not in CORRELATIONS:
        raise MeasureError(f"Unknown metric {name!r}: {near_matches(name, CORRELATIONS)}.")
    return CORRELATIONS[name]


def fisher_interval(
    value: float, freedom: int, *, min_freedom: int = 1, is_rank: bool = False, limit: float = 1 - 1e-15
) -> tuple[float, float]:
    """Return the 95 % interval of a correlation over `freedom` + 3 pairs by Fisher's transformation.

    atanh(r) is nearly normal with variance 1 / freedom, or (1 + r^2 / 2) / freedom for a rank correlation (Bonett and
    Wright 2000). If `freedom` is less than `min_freedom`, the interval is (-1, 1). Correlations beyond +-`limit` are
    transformed as +-`limit`.

    >>> [round(bound, 3) for bound in fisher_interval(0.8, 100)]
    [0.718, 0.86]
    """
    if freedom < min_freedom:
        return -1.0, 1.0
    middle = np.arctanh(np.clip(value, -limit, limit))
    reach = special.ndtri(0.975) * np.sqrt((1 + value**2 / 2 if is_rank else 1.0) / freedom)
    return float(min(value, np.tanh(middle - reach))), float(max(value, np.tanh(middle + reach)))


def center_ranks(values: ArrayLike) -> Numbers:
    ranks = stats.rankdata(np.asarray(values, dtype=np.float64), axis=-1)
    return np.asarray(ranks - ranks.mean(axis=-1, keepdims=True))


def normalize_ranks(values: ArrayLike) -> Numbers:
    centered = center_ranks(values)
    norms = np.linalg.norm(centered, axis=-1, keepdims=True)
    return np.divide(centered, norms, out=np.zeros_like(centered), where=norms > 0)


@dataclass(frozen=True, slots=True)
class RankCorrelation:
    """A rank correlation, its 95 % interval, two-sided permutation p-value, and 95 % range of the null distribution."""

    value: float
    low: float
    high: float
    p: float
    null_low: float
    null_high: float


def rank_correlation(
    left: ArrayLike, right: ArrayLike, *, given: ArrayLike | None = None, seed: Seed = 0, shuffles: int = 2000
) -> RankCorrelation | None:
    """Compute the rank correlation of `left` and `right`, (layers,), or their partial correlation if `given` is set.

    The null distribution comes from shuffling `right`, or its residuals if `given` is set (Freedman and Lane 1983).
    Returns None for fewer than 4 layers or if `left` or `right` is constant. The correlation is 0 if `given` explains
    all ranks of `left` or `right`.

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
        fixed = center_ranks(given)
        squares = float(fixed @ fixed)
        ranks = [each if squares == 0 else each - fixed * (each @ fixed / squares) for each in ranks]
        if any(np.ptp(each) < ROUNDING for each in ranks):
            return RankCorrelation(0.0, *_rank_interval(0.0, freedom), p=1.0, null_low=0.0, null_high=0.0)
    unit = [each / np.linalg.norm(each) for each in ranks]
    value = float(np.clip(np.round(unit[0] @ unit[1], 12), -1.0, 1.0))
    draw = np.random.default_rng(seed)
    null = draw.permuted(np.tile(unit[1], (shuffles, 1)), axis=1) @ unit[0]
    p = (1 + int((np.abs(null) >= abs(value) - ROUNDING).sum())) / (1 + shuffles)
    low, high = _rank_interval(value, freedom)
    null_low, null_high = (float(bound) for bound in np.quantile(null, [0.025, 0.975]))
    return RankCorrelation(value, low, high, p, null_low, null_high)


def _rank_interval(value: float, freedom: int) -> tuple[float, float]:
    return fisher_interval(value, freedom, min_freedom=2, is_rank=True, limit=MAX_RANK_CORRELATION)
