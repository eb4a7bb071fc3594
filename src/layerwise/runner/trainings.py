"""Training runs that are stored in folders and can be resumed, and the tuning of their settings.

Settings are selected by the validation loss of each variant. A trial is stored in RUN/pilot/VARIANT@RATE/seed-1000, or
in RUN/pilot/VARIANT@RATE,BATCH/seed-1000 if batch sizes are tuned, too. Trials have a separate seed and do not use test
examples. The grid of learning rates is extended while the best one is the smallest or the largest.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeAlias, TypeVar

from layerwise.data.splits import Splits
from layerwise.measure.interventions.survey import Survey
from layerwise.results import Run, Score
from layerwise.results.training_record import FILE, MODEL, TrainingRecord
from layerwise.runner.reporter import Reporter, format_duration
from layerwise.runner.tasks import Remaining, Study, Task
from layerwise.runner.training_runs import PILOT, report_training
from layerwise.train.checkpoint_dir import existing_run, last_checkpoint, steps_of
from layerwise.train.recipe import GrowthExtension, Recipe
from layerwise.train.training import Base, train, trainer_of, training_config
from layerwise.train.training_log import Progress, time_step

if TYPE_CHECKING:
    from layerwise.train.pretrain.recipe import PretrainingRecipe


R = TypeVar("R", bound="Recipe | PretrainingRecipe")


@dataclass(frozen=True, slots=True)
class FolderTraining(Generic[R]):
    recipe: R
    seed: int
    folder: str
    label: str

    @classmethod
    def of(cls, recipe: R, seed: int) -> FolderTraining[R]:
        return cls(recipe, seed, f"{recipe.variant}/seed-{seed}", f"{recipe.variant}/{seed}")


RecipeTraining: TypeAlias = FolderTraining[Recipe]


class FolderTrainings(Task[list[TrainingRecord]], Generic[R]):
    """Training runs that are stored in folders and can be resumed. `arguments` are passed to `TrainingArguments`."""

    trainings: Sequence[FolderTraining[R]]
    arguments: Mapping[str, Any]
    collective: ClassVar[bool] = True

    @abstractmethod
    def training_config(self, training: FolderTraining[R]) -> dict[str, Any]:
        """Return the settings that identify a training run."""

    @abstractmethod
    def train(self, training: FolderTraining[R], folder: Path, progress: Progress) -> TrainingRecord:
        """Start or resume a training run in `folder`, or read its record if it has finished."""

    @abstractmethod
    def trial(self, recipe: R, folder: Path, quiet: Mapping[str, Any]) -> Any:
        """Return a Trainer whose steps can be timed in a temporary `folder`. `quiet` overrides its arguments."""

    @abstractmethod
    def length(self, recipe: R) -> int:
        """Return the number of steps of a training run."""

    @staticmethod
    @abstractmethod
    def outcome(record: TrainingRecord) -> str:
        """Describe the result of a training run, as the end of a sentence."""

    def refuse(self, folder: Path) -> None:
        for each in self.trainings:
            existing_run(folder / each.folder, self.training_config(each))

    def due(self, folder: Path) -> list[FolderTraining[R]]:
        return [each for each in self.trainings if not (folder / each.folder / MODEL / FILE).is_file()]

    def execute(self, study: Study) -> list[TrainingRecord]:
        self.refuse(study.folder)
        for training in self.due(study.folder):
            record = self._trained(training, study.folder, study.reporter)
            steps = f"{record.steps:,} step{'s' * (record.steps != 1)}"
            study.reporter.log(f"{training.label}: {steps} in {format_duration(record.seconds)}{self.outcome(record)}")
        return [self._trained(each, study.folder, study.reporter) for each in self.trainings]

    def remaining(self, folder: Path, run: Run | None) -> Remaining | None:
        due = self.due(folder)
        if not due:
            return None
        steps = sum(self._left(each, folder) for each in due)
        return Remaining(steps, "training steps", lambda: time_step(partial(self.trial, due[0].recipe)))

    def _left(self, training: FolderTraining[R], folder: Path) -> int:
        last = last_checkpoint(folder / training.folder)
        return self.length(training.recipe) - (0 if last is None else steps_of(last))

    def _trained(self, training: FolderTraining[R], folder: Path, reporter: Reporter) -> TrainingRecord:
        return self.train(training, folder / training.folder, report_training(reporter, training.label))


@dataclass(frozen=True)
class TrainingsTask(FolderTrainings[Recipe]):
    base: Base
    splits: Splits
    trainings: Sequence[RecipeTraining]
    arguments: Mapping[str, Any]

    def training_config(self, training: RecipeTraining) -> dict[str, Any]:
        return training_config(self.base, self.splits, training.recipe, training.seed)

    def train(self, training: RecipeTraining, folder: Path, progress: Progress) -> TrainingRecord:
        return train(
            self.base, self.splits, training.recipe, training.seed, folder, progress=progress, arguments=self.arguments
        )

    def trial(self, recipe: Recipe, folder: Path, quiet: Mapping[str, Any]) -> Any:
        return trainer_of(self.base, self.splits, recipe, 0, folder, arguments={**self.arguments, **quiet})

    def length(self, recipe: Recipe) -> int:
        return recipe.steps(len(self.splits.train))

    @staticmethod
    def outcome(record: TrainingRecord) -> str:
        losses = record.validation_losses
        if not losses:
            return ""
        if record.recipe["extension"] == GrowthExtension.NAME:
            return f", validation loss {losses[-1]:.3f}"
        return f", best validation loss {min(losses):.3f} at step {record.best_step:,}"


@dataclass(frozen=True, slots=True)
class StoredEvaluation:
    """An evaluation of a model. It is computed by `make(folder)` and stored in the file `path` of the run."""

    name: str
    path: str
    make: Callable[[Path], Survey]


@dataclass(frozen=True)
class EvaluationsTask(Task[dict[str, Survey]]):
    evaluations: Sequence[StoredEvaluation]

    def execute(self, study: Study) -> dict[str, Survey]:
        results = {}
        for number, each in enumerate(self.evaluations):
            path = study.folder / each.path
            if not path.is_file():
                study.reporter.progress(f"evaluating {each.name}", number / len(self.evaluations))
                path.parent.mkdir(parents=True, exist_ok=True)
                each.make(study.folder).save(path)
            results[each.name] = Survey.read(path)
        return results

    def remaining(self, folder: Path, run: Run | None) -> Remaining | None:
        missing = sum(not (folder / each.path).is_file() for each in self.evaluations)
        return Remaining(missing, "evaluations") if missing else None


FIRST_SWEEP_SEED = 1_000
"""Seed of the trials, which is larger than the seeds of the variants."""
MAX_EXTRA_RATES = 4
"""Maximum number of learning rates by which the grid is extended."""


def select_rate(losses: Mapping[float, float]) -> float:
    """Return the learning rate with the smallest validation loss; if there are several, the smallest of them."""
    return min(sorted(losses), key=losses.__getitem__)


def find_next_rate(losses: Mapping[float, float]) -> float | None:
    """Return the learning rate that extends the grid, or None if the best one is not at the edge of the grid.

    It continues the grid with the ratio between the best learning rate and its neighbor.

    >>> find_next_rate({1e-3: 5.0, 2e-3: 4.0, 4e-3: 3.0}), find_next_rate({1e-3: 5.0, 2e-3: 4.0, 4e-3: 4.5})
    (0.008, None)
    """
    rates = sorted(losses)
    best = min(rates, key=losses.__getitem__)
    if len(rates) < 2 or rates[0] < best < rates[-1]:
        return None
    neighbor = rates[1] if best == rates[0] else rates[-2]
    return float(f"{best * best / neighbor:.6g}")


def sweep_rates(first: Sequence[float], loss_at: Callable[[float], float]) -> dict[float, float]:
    """Return the validation loss of each learning rate.

    If there are several learning rates, the grid is extended while the best one is at its edge.
    """
    losses: dict[float, float] = {}
    due, most = list(first), len(first) + (MAX_EXTRA_RATES if len(first) > 1 else 0)
    while due:
        rate = due.pop(0)
        losses[rate] = loss_at(rate)
        if not due and len(losses) < most and (further := find_next_rate(losses)) is not None:
            due.append(further)
    return losses


def make_trial(recipe: Recipe, *settings: float) -> RecipeTraining:
    label = f"{recipe.variant}@{','.join(f'{each:g}' for each in settings)}"
    return replace(
        RecipeTraining.of(recipe, FIRST_SWEEP_SEED), folder=f"{PILOT}/{label}/seed-{FIRST_SWEEP_SEED}", label=label
    )


def make_trial_rows(
    measure: str, variant: str, losses: Mapping[float, float], batch: int | None = None
) -> Iterator[Score]:
    for rate, loss in sorted(losses.items()):
        yield Score(measure, "validation_nll", loss, variant=variant, learning_rate=rate, batch_size=batch)


def make_choice_row(measure: str, variant: str, losses: Mapping[float, float], batch: int | None = None) -> Score:
    best = select_rate(losses)
    at_end = best in (min(losses), max(losses))
    return Score(
        measure, "chosen_at_end" if at_end else "chosen", 1.0, variant=variant, learning_rate=best, batch_size=batch
    )
