"""What every model of a healing does on the text that is reported, example by example, stored beside the model."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import numpy as np

from layerwise.data.splits import Splits
from layerwise.experiments.reporter import Reporter
from layerwise.measure.interventions.accuracy import Predictions, evaluate
from layerwise.measure.interventions.survey import Survey
from layerwise.measure.stats.statistics import Numbers, student_interval
from layerwise.plan import Plan
from layerwise.stack import Stack

ALL = "all"


class Outcomes:
    """Predictions by name, and the examples of every task; what was evaluated before is read from the run folder."""

    def __init__(self, folder: Path, splits: Splits, is_filled_in: bool, reporter: Reporter) -> None:
        self._folder = folder / "outcomes"
        self._splits = splits
        self._is_filled_in = is_filled_in
        self._reporter = reporter
        self._predictions: dict[str, Predictions] = {}
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

    def add(self, name: str, trained: Path | str, plan: Plan, opened: Callable[[], Stack]) -> None:
        """Evaluate a model under a plan, unless its outcome is stored; `trained` names its training, if it had one."""
        key = sha256(f"{self._splits.digest}/{trained}/{plan}".encode()).hexdigest()[:16]
        path = self._folder / f"{key}.npz"
        if path.is_file():
            self._predictions[name] = Survey.read(path).outcomes["test"]
            return
        self._reporter.progress(f"evaluating {name}", 0.0)
        stack, splits = opened(), self._splits
        outcome = evaluate(stack, plan, splits.test, splits.collate, filled_in=self._is_filled_in)
        path.parent.mkdir(exist_ok=True)
        Survey(stack.depth, {"test": outcome}).save(path)
        self._predictions[name] = outcome

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
