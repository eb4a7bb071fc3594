"""Scores of fine-tuned tasks, by suite, task and arm."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from layerwise.page.data import ReportData
from layerwise.page.trained import by_arm
from layerwise.results.rows import Score
from layerwise.results.selection import Rows
from layerwise.results.vocabulary import CHANCE, FINE_TUNED


def task_metrics(data: ReportData) -> list[tuple[str, str, str]]:
    rows = data.rows.where(measure=FINE_TUNED, plan=None, condition=None, against=None)
    names = ((row.measure, row.task, row.metric) for row in rows)
    return sorted(dict.fromkeys(names), key=lambda name: FINE_TUNED.index(name[0]))


def taught(data: ReportData) -> Iterator[Score]:
    for suite, task, metric in task_metrics(data):
        rows = data.rows.where(measure=suite, task=task, metric=metric, plan=None, condition=None)
        yield from by_arm(rows.where(against=None))
        yield from _chances(rows)


def _chances(rows: Rows) -> Iterator[Score]:
    return (replace(row, arm=None, seed=None, tuning_seed=None) for row in rows.where(against=CHANCE)[:1])
