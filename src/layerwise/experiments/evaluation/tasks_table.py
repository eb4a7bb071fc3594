"""Scores on fine-tuned tasks as a table for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from layerwise.data.suites.classification import Task
from layerwise.experiments.finetuned_tasks import CHANCE
from layerwise.plan.subject import plan_and_label
from layerwise.results import Run


def tasks_table(run: Run, suite: str, tasks: Sequence[Task]) -> str:
    """The metric that the field reports of every arm as trained on the tasks of a suite, with its interval.

    Beside it stands what always giving the commonest answer gives.
    """
    lines = [f"{suite} (fine-tuned; beside each score what always giving the commonest answer gives):"]
    width = max(len(task.name) for task in tasks)
    for task in tasks:
        name, metric = task.name, task.metric
        chance = {row.subject: row.value for row in run.store.scores(suite, task=name, metric=metric + CHANCE)}
        for row in run.store.scores(suite, task=name, metric=metric):
            of_arm = "/" not in row.subject and plan_and_label(row.subject)[0] is None
            if of_arm and row.low is not None and row.high is not None:
                shown = f"{row.value:.3f} [{row.low:.3f}, {row.high:.3f}]   commonest {chance[row.subject]:.3f}"
                lines.append(f"  {name:{width}} {row.subject:16} {metric:8} {shown}")
    return "\n".join(lines)
