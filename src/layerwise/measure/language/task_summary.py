"""Scores of classification tasks, and their mean and median on a scale from chance to the original model."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import numpy as np

from layerwise.data.suites.classification import ClassificationTask
from layerwise.measure.stats.correlation import find_correlation, fisher_interval
from layerwise.measure.stats.task_metrics import (
    confusion_matrix,
    find_metric,
    guess_score,
    metric_interval,
)
from layerwise.results.rows import Score
from layerwise.results.vocabulary import ALL, CHANCE, NORMALIZED

MEAN, MEDIAN = "mean", "median"
"""Metrics that summarize several tasks (task `ALL`)."""

DRAWS = 4000


@dataclass(frozen=True, slots=True)
class ChanceScale:
    """The scale from chance (0) to the original model (1): (score - chance) / (score of the original model - chance).

    From Sun et al. 2024, arXiv 2407.09298, section 2. Intervals ignore the error of the original model's score.
    """

    chance: float
    trained: float

    def apply(self, row: Score) -> Score:
        """Scale the value and the interval of a row, and set its condition to `NORMALIZED`."""
        low, high = (None if each is None else self._scale(each) for each in (row.low, row.high))
        return replace(row, condition=NORMALIZED, value=self._scale(row.value), low=low, high=high)

    def _scale(self, value: float) -> float:
        return (value - self.chance) / (self.trained - self.chance)


def chance_scale(trained: Score, chance: Score) -> ChanceScale | None:
    """Return the scale of a task, or None if the interval of the original model (`trained`) is not above chance."""
    lowest = trained.value if trained.low is None else trained.low
    return ChanceScale(chance.value, trained.value) if lowest > chance.value else None


def mean_over_tasks(rows: Sequence[Score], metric: str) -> Score:
    """Average the rows of tasks, adding the errors of the intervals in quadrature."""
    value = fmean(row.value for row in rows)
    bounds = [
        (row.value - row.low, row.high - row.value) for row in rows if row.low is not None and row.high is not None
    ]
    low = high = None
    if len(bounds) == len(rows):
        below, above = (math.hypot(*(bound[side] for bound in bounds)) / len(rows) for side in (0, 1))
        low, high = value - below, value + above
    return _over(rows, metric, value, low, high)


def median_over_tasks(rows: Sequence[Score], metric: str) -> Score:
    """Return the median over tasks. Its interval comes from medians of values drawn from a normal for each task."""
    values = np.array([row.value for row in rows])
    value = float(np.median(values))
    low = high = None
    widths = [(row.high - row.low) / 2 for row in rows if row.low is not None and row.high is not None]
    if len(widths) == len(rows):
        drawn = np.random.default_rng(0).normal(values, np.array(widths) / 1.96, size=(DRAWS, len(rows)))
        bounds = np.quantile(np.median(drawn, axis=1), (0.025, 0.975))
        low, high = min(value, float(bounds[0])), max(value, float(bounds[1]))
    return _over(rows, metric, value, low, high)


def summary_rows(scores: Mapping[str, Score], chances: Mapping[str, Score]) -> list[Score]:
    """Return the mean over tasks of a model's scores and of the scores of chance. A single task has no rows."""
    if len(scores) < 2:
        return []
    rows, guesses = list(scores.values()), [replace(row, low=None, high=None) for row in chances.values()]
    return [mean_over_tasks(rows, MEAN), mean_over_tasks(guesses, MEAN)]


def normalized_rows(scores: Mapping[str, Score], scales: Mapping[str, ChanceScale]) -> list[Score]:
    rows = [scales[task].apply(row) for task, row in scores.items() if task in scales]
    if len(rows) < 2:
        return rows
    return [*rows, mean_over_tasks(rows, MEAN), median_over_tasks(rows, MEDIAN)]


def _over(rows: Sequence[Score], metric: str, value: float, low: float | None, high: float | None) -> Score:
    documents = sum(row.documents or 0 for row in rows) or None
    row = replace(rows[0], task=ALL, metric=metric, value=value, low=low, high=high, documents=documents)
    return replace(row, p=None, p_adjusted=None, mde=None, tokens=None)


def task_value(task: ClassificationTask, metric: str, labels: Sequence[float], answers: Sequence[float]) -> float:
    if task.is_regression:
        return find_correlation(metric)(labels, answers)
    return float(find_metric(metric)(confusion_matrix(labels, answers, len(task.labels))))


def task_rows(task: ClassificationTask, labels: Sequence[float], answers: Sequence[float]) -> list[Score]:
    """Return each metric with its interval over test examples, and the score of a constant prediction (`chance`).

    For classification the constant is the most frequent training label. For regression `chance` is 0.
    """
    rows = []
    for metric in task.metrics:
        value = task_value(task, metric, labels, answers)
        if task.is_regression:
            interval = fisher_interval(value, len(labels) - 3, is_rank=metric == "spearman")
            (low, high), chance = interval, 0.0
        else:
            counts = confusion_matrix(labels, answers, len(task.labels))
            (low, high), chance = metric_interval(metric, counts), guess_score(metric, counts, task.commonest)
        columns: dict[str, Any] = {"task": task.name, "documents": len(labels)}
        rows += [
            Score(task.measure, metric, value, low, high, **columns),
            Score(task.measure, metric, chance, against=CHANCE, **columns),
        ]
    return rows
