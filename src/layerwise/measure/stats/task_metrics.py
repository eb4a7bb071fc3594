"""Classification metrics with intervals.

They are computed from confusion matrices (..., labels, labels), where C[t, p] is the number of examples with label t
that were predicted as p.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike

from layerwise.errors import MeasureError, near_matches
from layerwise.measure.stats.statistics import LEVEL, Numbers, wilson

DRAWS = 4000


def confusion_matrix(labels: ArrayLike, predictions: ArrayLike, classes: int) -> Numbers:
    """Count examples by label (rows) and prediction (columns), giving shape (classes, classes).

    >>> confusion_matrix([0, 0, 1], [0, 1, 1], 2).tolist()
    [[1.0, 1.0], [0.0, 1.0]]
    """
    cells = np.asarray(labels, dtype=np.int64) * classes + np.asarray(predictions, dtype=np.int64)
    return np.bincount(cells, minlength=classes**2).reshape(classes, classes).astype(np.float64)


def accuracy(counts: ArrayLike) -> Numbers:
    """Return the fraction of examples that were predicted correctly.

    >>> float(accuracy([[3, 1], [0, 4]]))
    0.875
    """
    matrix = np.asarray(counts, dtype=np.float64)
    return np.asarray(np.trace(matrix, axis1=-2, axis2=-1) / matrix.sum((-2, -1)))


def mcc(counts: ArrayLike) -> Numbers:
    """Return the Matthews correlation coefficient (Gorodkin 2004), or 0 if labels or predictions are constant.

        mcc = (n c - sum_k t_k p_k) / sqrt((n^2 - sum_k t_k^2) (n^2 - sum_k p_k^2))

    Of n examples, c are predicted correctly, t_k have label k, and p_k are predicted as k.

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
    """Return the F1 score of label 1 of a binary task, or 0 if label 1 is never predicted correctly.

    >>> float(f1([[2, 1], [1, 2]]))
    0.6666666666666666
    """
    matrix = np.asarray(counts, dtype=np.float64)
    hits = matrix[..., 1, 1]
    below = 2 * hits + matrix[..., 0, 1] + matrix[..., 1, 0]
    return np.asarray(np.divide(2 * hits, below, out=np.zeros_like(below), where=below > 0))


METRICS: Mapping[str, Callable[[ArrayLike], Numbers]] = MappingProxyType({"mcc": mcc, "f1": f1, "accuracy": accuracy})


def find_metric(name: str) -> Callable[[ArrayLike], Numbers]:
    if name not in METRICS:
        raise MeasureError(f"Unknown metric {name!r}: {near_matches(name, METRICS)}.")
    return METRICS[name]


def metric_interval(name: str, counts: ArrayLike) -> tuple[float, float]:
    """Return the 95 % interval of a metric, given a confusion matrix (labels, labels).

    Accuracy has Wilson's interval. Other metrics have Jeffreys' interval: the central 95 % of the metric over draws
    from a Dirichlet distribution with parameters counts + 1/2, widened if necessary to include the observed value.
    """
    matrix = np.asarray(counts, dtype=np.float64)
    metric = find_metric(name)
    value = float(metric(matrix))
    if name == "accuracy":
        share = wilson(np.trace(matrix), int(matrix.sum()))
        low, high = share.low, share.high
    else:
        chances = np.random.default_rng(0).dirichlet(matrix.ravel() + 0.5, size=DRAWS)
        low, high = np.quantile(metric(chances.reshape(DRAWS, *matrix.shape)), ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    return min(value, float(low)), max(value, float(high))


def guess_score(name: str, counts: ArrayLike, guess: int) -> float:
    """Return the metric of a classifier that always predicts `guess`, given a confusion matrix (labels, labels).

    >>> guess_score("accuracy", [[3, 3], [2, 2]], 0), guess_score("mcc", [[3, 3], [2, 2]], 0)
    (0.6, 0.0)
    """
    matrix = np.zeros_like(np.asarray(counts, dtype=np.float64))
    matrix[:, guess] = np.asarray(counts, dtype=np.float64).sum(-1)
    return float(find_metric(name)(matrix))
