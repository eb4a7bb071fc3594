"""What every model of a healing does on the text that is reported, example by example, stored beside the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path

import numpy as np

from layerwise.data.splits import Splits
from layerwise.experiments.engines.trainings import KeptEvaluation
from layerwise.measure.interventions.accuracy import evaluate
from layerwise.measure.interventions.survey import Survey
from layerwise.measure.stats.statistics import Numbers, student_interval
from layerwise.plan import Plan
from layerwise.stack import Stack

ALL = "all"
FOLDER = "outcomes"


def outcome_of(
    name: str, trained: str, plan: Plan, opened: Callable[[Path], Stack], splits: Splits, filled_in: bool
) -> KeptEvaluation:
    """What the model that `opened(folder)` gives does under a plan; `trained` names its training, if it had one."""
    key = sha256(f"{splits.digest}/{trained}/{plan}".encode()).hexdigest()[:16]

    def make(folder: Path) -> Survey:
        stack = opened(folder)
        outcome = evaluate(stack, plan, splits.test, splits.collate, filled_in=filled_in)
        return Survey(stack.depth, {"test": outcome})

    return KeptEvaluation(name, f"{FOLDER}/{key}.npz", make)


class Outcomes:
    """What models did by name, and the examples of every task."""

    def __init__(self, splits: Splits, surveys: Mapping[str, Survey]) -> None:
        self._predictions = {name: survey.outcomes["test"] for name, survey in surveys.items()}
        windows = getattr(splits.test, "windows", None)
        units = [str(index) for index in range(len(splits.test))]
        tasks = [ALL] * len(units)
        if windows is not None:
            units = [f"{window.task}/{window.document}" for window in windows]
            tasks = [window.task for window in windows]
        self._units = np.unique(units, return_inverse=True)[1]
        named = sorted(set(tasks))
        self._of_task = {ALL: np.ones(len(units), dtype=bool)}
        if len(named) > 1:
            self._of_task |= {task: np.array([each == task for each in tasks]) for task in named}
        self._answers = {
            task: windows is not None and all(
                window.scored_from > 1 for window, held in zip(windows, mask, strict=True) if held
            )
            for task, mask in self._of_task.items()
        }  # fmt: skip

    @property
    def tasks(self) -> tuple[str, ...]:
        """All of the text, and its tasks where it has several."""
        return tuple(self._of_task)

    def nll(self, name: str, task: str) -> float:
        """Nats for each scored token (or image)."""
        mask, outcome = self._of_task[task], self._predictions[name]
        return float(outcome.nll[mask].sum() / outcome.scored[mask].sum())

    def accuracy(self, name: str, task: str) -> float:
        """The share that was right: of whole answers, where the task asks for answers, else of tokens or images."""
        mask, outcome = self._of_task[task], self._predictions[name]
        if self._answers[task]:
            return float((outcome.hits[mask] == outcome.scored[mask]).mean())
        return float(outcome.hits[mask].sum() / outcome.scored[mask].sum())

    def documents(self, task: str) -> int:
        """The documents, or images, of a task."""
        return len(np.unique(self._units[self._of_task[task]]))

    def tokens(self, task: str) -> int:
        """What is scored in a task."""
        return int(next(iter(self._predictions.values())).scored[self._of_task[task]].sum())

    def difference(self, first: str, second: str, task: str) -> tuple[float, float | None, float | None]:
        """Nats that `first` loses above `second`, with Student's interval over documents, paired.

        A task of a single document has no interval.
        """
        mask = self._of_task[task]
        changes = self._predictions[first].nll - self._predictions[second].nll
        units = np.unique(self._units[mask], return_inverse=True)[1]
        above, below = (np.bincount(units, weights=values[mask]) for values in (changes, self._scored(first)))
        if below.size < 2:
            return float(above.sum() / below.sum()), None, None
        estimate = student_interval(above[None], below)
        return float(estimate.value[0]), float(estimate.low[0]), float(estimate.high[0])

    def _scored(self, name: str) -> Numbers:
        return self._predictions[name].scored
