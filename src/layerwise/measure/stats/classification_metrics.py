"""What a classification is worth, from how often each label was taken for each: accuracy, Matthews' correlation, F1.

All three depend on the predictions through the confusion matrix C alone (C[t, p] counts the examples of label t that
were called p), so an interval needs no resampling of examples: their counts are drawn instead, a thousand at a time.
Every function takes one matrix or a stack of them, shape (..., labels, labels).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike, NDArray

from layerwise.errors import MeasureError, near_matches
from layerwise.measure.stats.statistics import wilson

Numbers = NDArray[np.float64]

DRAWS = 4000


def confusion_matrix(labels: ArrayLike, predictions: ArrayLike, classes: int) -> Numbers:
    """Counts (classes, classes): row the label, column what it was called.

    >>> confusion_matrix([0, 0, 1], [0, 1, 1], 2).tolist()
    [[1.0, 1.0], [0.0, 1.0]]
    """
    cells = np.asarray(labels, dtype=np.int64) * classes + np.asarray(predictions, dtype=np.int64)
    return np.bincount(cells, minlength=classes**2).reshape(classes, classes).astype(np.float64)


def accuracy(counts: ArrayLike) -> Numbers:
    """The share of examples called what they are.

    >>> float(accuracy([[3, 1], [0, 4]]))
    0.875
    """
    matrix = np.asarray(counts, dtype=np.float64)
    return np.asarray(np.trace(matrix, axis1=-2, axis2=-1) / matrix.sum((-2, -1)))


def mcc(counts: ArrayLike) -> Numbers:
    """Matthews' correlation between labels and predictions; 0 where either never varies.

        mcc = (n c - sum_k t_k p_k) / sqrt((n^2 - sum_k t_k^2) (n^2 - sum_k p_k^2))

    with n examples, c of them right, t_k of label k and p_k called k (Gorodkin 2004, the R_K statistic; for two labels
    Matthews 1975, which is Pearson's correlation of two 0/1 variables).

    >>> float(mcc([[5, 0], [0, 5]])), float(mcc([[0, 5], [5, 0]])), float(mcc([[5, 0], [5, 0]]))
    (1.0, -1.0, 0.0)
    """
    matrix = np.asarray(counts, dtype=np.float64)
    truth, called = matrix.sum(-1), matrix.sum(-2)
    total = truth.sum(-1)
    above = total * np.trace(matrix, axis1=-2, axis2=-1) - (truth * called).sum(-1)
    below = np.sqrt((total**2 - (truth**2).sum(-1)) * (total**2 - (called**2).sum(-1)))
    return np.asarray(np.divide(above, below, out=np.zeros_like(above), where=below > 0))


def f1(counts: ArrayLike) -> Numbers:
    """F1 of label 1, of two labels: 2 hits / (2 hits + false alarms + misses); 0 where label 1 is never right.

    >>> float(f1([[2, 1], [1, 2]]))
    0.6666666666666666
    """
    matrix = np.asarray(counts, dtype=np.float64)
    hits = matrix[..., 1, 1]
    below = 2 * hits + matrix[..., 0, 1] + matrix[..., 1, 0]
    return np.asarray(np.divide(2 * hits, below, out=np.zeros_like(below), where=below > 0))


METRICS: Mapping[str, Callable[[ArrayLike], Numbers]] = MappingProxyType({"mcc": mcc, "f1": f1, "accuracy": accuracy})


def metric_of(name: str) -> Callable[[ArrayLike], Numbers]:
    """The function of that name. Raises `MeasureError` for an unknown one."""
    if name not in METRICS:
        raise MeasureError(f"metric {name!r} is not known; {near_matches(name, METRICS)}")
    return METRICS[name]


def interval(name: str, counts: ArrayLike, *, seed: int = 0, level: float = 0.95) -> tuple[float, float]:
    """Where the metric of further examples like these would lie, from one matrix (labels, labels).

    Accuracy has Wilson's interval. The others have Jeffreys': the chances of the cells are drawn from a Dirichlet
    distribution with the parameters counts + 1/2, and the middle `level` of the metric's values is taken, widened where
    need be to hold the value itself. Unlike a bootstrap it has a width also when every prediction is right, or when all
    are the same.
    """
    matrix = np.asarray(counts, dtype=np.float64)
    of = metric_of(name)
    value = float(of(matrix))
    if name == "accuracy":
        share = wilson(np.trace(matrix), int(matrix.sum()), level)
        low, high = share.low, share.high
    else:
        chances = np.random.default_rng(seed).dirichlet(matrix.ravel() + 0.5, size=DRAWS)
        low, high = np.quantile(of(chances.reshape(DRAWS, *matrix.shape)), ((1 - level) / 2, (1 + level) / 2))
    return min(value, float(low)), max(value, float(high))


def guessed(name: str, counts: ArrayLike, guess: int) -> float:
    """What the metric would be if every example were called `guess`, from one matrix (labels, labels).

    >>> guessed("accuracy", [[3, 3], [2, 2]], 0), guessed("mcc", [[3, 3], [2, 2]], 0)
    (0.6, 0.0)
    """
    matrix = np.zeros_like(np.asarray(counts, dtype=np.float64))
    matrix[:, guess] = np.asarray(counts, dtype=np.float64).sum(-1)
    return float(metric_of(name)(matrix))
