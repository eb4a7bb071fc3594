"""Evaluations of models on the examples that are reported: each is kept in a file of its own, and made once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch.utils.data import Subset

from layerwise.data.splits import Splits
from layerwise.experiments.engines.steps import Unit, UnitSession
from layerwise.experiments.engines.trainings import positions
from layerwise.experiments.engines.work import Work, WorkCost, slow_seconds
from layerwise.measure.interventions.accuracy import BATCH, evaluate
from layerwise.measure.interventions.survey import Survey
from layerwise.plan import Plan
from layerwise.results import Run
from layerwise.stack import Stack
from layerwise.train.trial_steps import FEW


@dataclass(frozen=True, slots=True)
class KeptEvaluation:
    """What a model does, by name: kept in the file `path` of the run folder, made by `make(folder)`."""

    name: str
    path: str
    make: Callable[[Path], Survey]


@dataclass(frozen=True)
class EvaluationsUnit(Unit[dict[str, Survey]]):
    """Evaluations by name; `work(left)` is what so many of them take, each as much as any other."""

    evaluations: Sequence[KeptEvaluation]
    work: Callable[[int], Work]

    def carry_out(self, session: UnitSession) -> dict[str, Survey]:
        """Read what is there and make the rest, one model after the other."""
        made = {}
        for number, each in enumerate(self.evaluations):
            path = session.folder / each.path
            if not path.is_file():
                session.reporter.progress(f"evaluating {each.name}", number / len(self.evaluations))
                path.parent.mkdir(parents=True, exist_ok=True)
                each.make(session.folder).save(path)
            made[each.name] = Survey.read(path)
        return made

    def works(self, folder: Path, run: Run | None) -> Iterator[Work]:
        """The evaluations that are left."""
        left = sum(not (folder / each.path).is_file() for each in self.evaluations)
        if left:
            yield self.work(left)


def evaluation_work(name: str, stack: Stack, splits: Splits, count: float, *, filled_in: bool = False) -> Work:
    """`count` evaluations of a whole model of this size on the examples to report, by some of them."""
    examples = len(splits.test)

    def timed(few: int, first: int) -> float:
        chosen = Subset(splits.test, [(first + number * examples // few) % examples for number in range(few)])
        begun = time.perf_counter()
        evaluate(stack, Plan.identity(stack.depth), chosen, splits.collate, filled_in=filled_in)
        return (time.perf_counter() - begun) / few

    def measure(seconds: float) -> WorkCost:
        end = time.perf_counter() + seconds
        timed(min(examples, FEW), 0)  # the first one warms up
        each = timed(min(examples, FEW), 1)
        # As many more as there is time for, up to a batch: those of a whole batch take less each.
        more = min(examples, BATCH, int((end - time.perf_counter()) / each))
        each = timed(more, 2) if more > FEW else each
        return WorkCost(count * examples * each, measured_on=f"{max(more, FEW)} of {examples:,} examples")

    weights = sum(parameter.numel() for parameter in stack.model.parameters())
    operations = 2.0 * weights * positions(stack, splits) * count * examples
    return Work(name, measure, slow=slow_seconds(operations, count * examples / BATCH))
