"""What a regression is worth: how answers and scores go together, by value (Pearson) and by rank (Spearman).

Both intervals are Fisher's: atanh(r) is nearly normal with the variance 1 / (n - 3), for ranks (1 + r^2 / 2) / (n - 3)
(Bonett and Wright 2000). Answers that never vary have no correlation, and count as 0: they say nothing of the scores.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike
from scipy import special, stats

from layerwise.errors import MeasureError, near_matches

FEWEST = 4
"""With fewer examples the interval is all of -1..1."""


def pearson(scores: ArrayLike, answers: ArrayLike) -> float:
    """Pearson's correlation of two vectors; 0 where either never varies.

    >>> round(pearson([0, 1, 2], [1, 3, 5]), 6), pearson([0, 1, 2], [4, 4, 4])
    (1.0, 0.0)
    """
    left, right = (_centred(values) for values in (scores, answers))
    below = float(np.sqrt((left**2).sum() * (right**2).sum()))
    return float(np.clip((left * right).sum() / below, -1.0, 1.0)) if below > 0 else 0.0


def spearman(scores: ArrayLike, answers: ArrayLike) -> float:
    """Pearson's correlation of the ranks, those of equals shared.

    >>> spearman([0, 1, 2], [1, 3, 100])
    1.0
    """
    return pearson(stats.rankdata(np.asarray(scores)), stats.rankdata(np.asarray(answers)))


METRICS: Mapping[str, Callable[[ArrayLike, ArrayLike], float]] = MappingProxyType(
    {"pearson": pearson, "spearman": spearman}
)


def correlation_of(name: str) -> Callable[[ArrayLike, ArrayLike], float]:
    """The function of that name. Raises `MeasureError` for an unknown one."""
    if name not in METRICS:
        raise MeasureError(f"metric {name!r} is not known; {near_matches(name, METRICS)}")
    return METRICS[name]


def correlation_interval(name: str, value: float, examples: int, *, level: float = 0.95) -> tuple[float, float]:
    """Fisher's interval of a correlation `value` of so many examples.

    >>> [round(bound, 3) for bound in correlation_interval("pearson", 0.8, 103)]
    [0.718, 0.86]
    """
    if examples < FEWEST:
        return -1.0, 1.0
    spread = 1.0 + value**2 / 2 if name == "spearman" else 1.0
    reach = float(special.ndtri((1 + level) / 2)) * float(np.sqrt(spread / (examples - 3)))
    centre = float(np.arctanh(np.clip(value, -1 + 1e-15, 1 - 1e-15)))
    low, high = np.tanh([centre - reach, centre + reach])
    return min(value, float(low)), max(value, float(high))


def _centred(values: ArrayLike) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    array = np.asarray(values, dtype=np.float64)
    # Equal values may differ from their mean by its rounding, which is no variation.
    return np.zeros_like(array) if np.ptp(array) == 0 else array - array.mean()
