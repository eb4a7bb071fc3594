"""Metrics of tasks: accuracy, Matthews' correlation and F1 of labels; Pearson's and Spearman's of scores.

Metrics of labels take confusion matrices (..., labels, labels), where C[t, p] counts the examples of label t that
were predicted as p; their intervals draw counts instead of resampling examples.

The intervals of correlations are Fisher's: atanh(r) is nearly normal with the variance 1 / (n - 3), for ranks
(1 + r^2 / 2) / (n - 3) (Bonett and Wright 2000). Constant answers have correlation 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike
from scipy import special, stats

from layerwise.errors import MeasureError, near_matches
from layerwise.measure.stats.statistics import LEVEL, Numbers, wilson

DRAWS = 4000

MIN_EXAMPLES = 4
"""With fewer examples the interval of a correlation is all of -1..1."""


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
    """Return Matthews' correlation between labels and predictions; 0 where either never varies.

        mcc = (n c - sum_k t_k p_k) / sqrt((n^2 - sum_k t_k^2) (n^2 - sum_k p_k^2))

    with n examples, c of them right, t_k of label k and p_k predicted as k (Gorodkin 2004; Matthews 1975).

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


def find_metric(name: str) -> Callable[[ArrayLike], Numbers]:
    if name not in METRICS:
        raise MeasureError(f"metric {name!r} is not known; {near_matches(name, METRICS)}")
    return METRICS[name]


def metric_interval(name: str, counts: ArrayLike) -> tuple[float, float]:
    """Return the 95 % interval of the metric from one matrix (labels, labels).

    Accuracy has Wilson's interval. The others have Jeffreys': cells are drawn from a Dirichlet distribution with
    parameters counts + 1/2; the middle of the metric is widened to include the value itself.
    """
    matrix = np.asarray(counts, dtype=np.float64)
    of = find_metric(name)
    value = float(of(matrix))
    if name == "accuracy":
        share = wilson(np.trace(matrix), int(matrix.sum()))
        low, high = share.low, share.high
    else:
        chances = np.random.default_rng(0).dirichlet(matrix.ravel() + 0.5, size=DRAWS)
        low, high = np.quantile(of(chances.reshape(DRAWS, *matrix.shape)), ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    return min(value, float(low)), max(value, float(high))


def guess_score(name: str, counts: ArrayLike, guess: int) -> float:
    """What the metric would be if every example were called `guess`, from one matrix (labels, labels).

    >>> guess_score("accuracy", [[3, 3], [2, 2]], 0), guess_score("mcc", [[3, 3], [2, 2]], 0)
    (0.6, 0.0)
    """
    matrix = np.zeros_like(np.asarray(counts, dtype=np.float64))
    matrix[:, guess] = np.asarray(counts, dtype=np.float64).sum(-1)
    return float(find_metric(name)(matrix))


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


CORRELATIONS: Mapping[str, Callable[[ArrayLike, ArrayLike], float]] = MappingProxyType(
    {"pearson": pearson, "spearman": spearman}
)


def find_correlation(name: str) -> Callable[[ArrayLike, ArrayLike], float]:
    if name not in CORRELATIONS:
        raise MeasureError(f"metric {name!r} is not known; {near_matches(name, CORRELATIONS)}")
    return CORRELATIONS[name]


def correlation_interval(name: str, value: float, examples: int) -> tuple[float, float]:
    """Fisher's interval of a correlation `value` of so many examples.

    >>> [round(bound, 3) for bound in correlation_interval("pearson", 0.8, 103)]
    [0.718, 0.86]
    """
    if examples < MIN_EXAMPLES:
        return -1.0, 1.0
    spread = 1.0 + value**2 / 2 if name == "spearman" else 1.0
    reach = float(special.ndtri(0.975)) * float(np.sqrt(spread / (examples - 3)))
    centre = float(np.arctanh(np.clip(value, -1 + 1e-15, 1 - 1e-15)))
    low, high = np.tanh([centre - reach, centre + reach])
    return min(value, float(low)), max(value, float(high))


def _centred(values: ArrayLike) -> Numbers:
    array = np.asarray(values, dtype=np.float64)
    # Equal values may differ from their mean by its rounding, which is no variation.
    return np.zeros_like(array) if np.ptp(array) == 0 else array - array.mean()
