"""Scores on fine-tuned tasks as a table for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from layerwise.data.suites.classification import Task
from layerwise.results import Run
from layerwise.results.selection import Rows
from layerwise.results.vocabulary import CHANCE


def tasks_table(run: Run, suite: str, tasks: Sequence[Task]) -> str:
    """The metric that the field reports of every arm as trained on the tasks of a suite, with its interval.

    Beside it stands what always giving the commonest answer gives.
    """
    lines = [f"{suite} (fine-tuned; beside each score what always giving the commonest answer gives):"]
    width = max(len(task.name) for task in tasks)
    for task in tasks:
        name, metric = task.name, task.metric
        rows = Rows(run.store.scores(suite, task=name, metric=metric)).where(seed=None, plan=None, condition=None)
        chance = rows.where(against=CHANCE).along("arm")
        for arm, row in rows.where(against=None).along("arm").items():
            if row.low is not None and row.high is not None:
                shown = f"{row.value:.3f} [{row.low:.3f}, {row.high:.3f}]   commonest {chance[arm].value:.3f}"
                lines.append(f"  {name:{width}} {arm:16} {metric:8} {shown}")
    return "\n".join(lines)
