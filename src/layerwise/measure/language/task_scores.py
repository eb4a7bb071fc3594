"""What answers to a task are worth in one of its metrics, whether its examples have labels or scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from layerwise.data.suites.classification import Task
from layerwise.measure.stats.task_metrics import (
    confusion_matrix,
    correlation_interval,
    correlation_of,
    guessed,
    interval,
    metric_of,
)


@dataclass(frozen=True, slots=True)
class TaskScore:
    """A metric with its interval over test examples, and `chance`: what always giving one answer would score."""

    value: float
    low: float
    high: float
    chance: float


def task_value(task: Task, metric: str, labels: Sequence[float], answers: Sequence[float]) -> float:
    """The metric of `answers` to examples of these labels, or scores."""
    if task.is_regression:
        return correlation_of(metric)(labels, answers)
    return float(metric_of(metric)(confusion_matrix(labels, answers, len(task.labels))))


def task_score(task: Task, metric: str, labels: Sequence[float], answers: Sequence[float]) -> TaskScore:
    """The metric with its interval. The one answer of `chance` is the commonest label of the training examples; in a
    regression any, since a constant has no correlation."""
    value = task_value(task, metric, labels, answers)
    if task.is_regression:
        return TaskScore(value, *correlation_interval(metric, value, len(labels)), 0.0)
    counts = confusion_matrix(labels, answers, len(task.labels))
    return TaskScore(value, *interval(metric, counts), guessed(metric, counts, task.commonest))
