"""Trainings from one base model: each resumes by itself in its folder, and any worker can carry one out."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from torch.utils.data import Subset

from layerwise.data.splits import Splits
from layerwise.experiments.cluster.pieces import carried_out, refuse_unseen
from layerwise.experiments.engines.steps import Unit, UnitSession
from layerwise.experiments.engines.work import Work, WorkCost, slow_seconds
from layerwise.experiments.reporter import Reporter
from layerwise.experiments.sentences import duration
from layerwise.experiments.training_runs import training_progress
from layerwise.measure.interventions.accuracy import BATCH, evaluate
from layerwise.measure.interventions.survey import Survey
from layerwise.measure.workers import Plain
from layerwise.plan import Plan
from layerwise.results import Run
from layerwise.results.training_record import FILE, MODEL, TrainingRecord
from layerwise.schedule import GrowthSchedule, ModelCost
from layerwise.stack import Stack
from layerwise.train.checkpoint_dir import existing_run, last_checkpoint, steps_of
from layerwise.train.recipe import GrowthVariant, Recipe, Settings, grown
from layerwise.train.training import Base, train, trainer_of, training_config
from layerwise.train.trial_steps import FEW, training_times

_KEPT = 3
"""Checkpoints that are on disk at once: the last, the best, and the one that is being written."""

_CALLS = 5
"""A step, forward and backward with the optimizer's, beside a pass of the model."""


@dataclass(frozen=True, slots=True)
class RecipeTraining:
    """A training of a recipe with a seed: what it is called, and its folder in that of the run."""

    recipe: Recipe
    seed: int
    folder: str
    label: str

    @classmethod
    def of(cls, recipe: Recipe, seed: int) -> RecipeTraining:
        """The training of an arm, in `RUN/ARM/seed-N`."""
        return cls(recipe, seed, f"{recipe.arm}/seed-{seed}", f"{recipe.arm}/{seed}")

    def plain(self, run: Path) -> Plain:
        """As plain values, in the run folder `run`."""
        return {
            "part": "training", "training": self.folder, "folder": str(run.absolute()), "seed": self.seed,
            "label": self.label, "recipe": self.recipe.to_json(),
        }  # fmt: skip

    @classmethod
    def grown(cls, piece: Plain) -> RecipeTraining:
        """What `plain` describes, where it is a training in phases."""
        return cls(grown_from_json(piece["recipe"]), piece["seed"], piece["training"], piece["label"])


@dataclass(frozen=True)
class TrainingsUnit(Unit[list[TrainingRecord]]):
    """The records of `trainings`, in their order; those that are finished are not trained again.

    `stack` is a model of the size that is trained, `arguments` are further `TrainingArguments`.
    """

    base: Base
    stack: Stack
    splits: Splits
    trainings: Sequence[RecipeTraining]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    collective: ClassVar[bool] = True

    def refuse(self, folder: Path) -> None:
        """Raise `TrainError` where the run `folder` holds another training in the place of one of these."""
        for each in self.trainings:
            wanted = training_config(self.base, self.splits, each.recipe, each.seed)
            existing_run(folder / each.folder, wanted)

    def due(self, folder: Path) -> list[RecipeTraining]:
        """The trainings that are not finished in the run `folder`."""
        return [each for each in self.trainings if not (folder / each.folder / MODEL / FILE).is_file()]

    def carry_out(self, session: UnitSession) -> list[TrainingRecord]:
        """Train what is missing; raises what `train` does, and `RunError` where a worker's model is not seen here."""
        self.refuse(session.folder)
        due = self.due(session.folder)
        pieces = [each.plain(session.folder) for each in due]
        for number in carried_out(session.spread, pieces, self.carry_out_piece, session.reporter):
            refuse_unseen(due[number].label, session.spread, due[number] not in self.due(session.folder))
        return [self._train(each, session.folder, session.reporter) for each in self.trainings]

    def carry_out_piece(self, piece: Plain, reporter: Reporter) -> None:
        """Carry out one training, which `carry_out` made a piece of.

        A worker may be handed one in phases that is not among those it knows of, since others decided its schedule.
        """
        known = {each.folder: each for each in self.trainings}
        training = known.get(piece["training"]) or RecipeTraining.grown(piece)
        record = self._train(training, Path(piece["folder"]), reporter)
        losses = [entry.loss for entry in record.history if entry.kind == "validation"]
        least = f", least validation loss {min(losses):.3f} at step {record.best_step:,}" if losses else ""
        if training.recipe.growth is not None:  # its last weights are kept
            least = f", validation loss {losses[-1]:.3f}" if losses else ""
        steps = f"{record.steps:,} step{'s' * (record.steps != 1)}"
        reporter.log(f"{training.label}: {steps} in {duration(record.seconds)}{least}")

    def works(self, folder: Path, run: Run | None) -> Iterator[Work]:
        """The trainings that are not finished, by their recipes."""
        left: dict[str, tuple[Recipe, list[int]]] = {}
        for each in self.trainings:
            _, behind = left.setdefault(each.recipe.arm, (each.recipe, []))
            behind += steps_behind([folder / each.folder])
        yield from recipe_works(self.base, self.stack, self.splits, left, self.arguments)

    def _train(self, training: RecipeTraining, folder: Path, reporter: Reporter) -> TrainingRecord:
        return train(
            self.base, self.splits, training.recipe, training.seed, folder / training.folder,
            progress=training_progress(reporter, training.label), arguments=self.arguments,
        )  # fmt: skip


def grown_from_json(content: Mapping[str, Any]) -> Recipe:
    """The recipe of a growth schedule that `Recipe.to_json` wrote."""
    options, settings = content["options"], content["settings"]
    cost = ModelCost(**{**options["cost"], "layers": tuple(options["cost"]["layers"])})
    variant = GrowthVariant(GrowthSchedule.from_json(options["schedule"]), options["steps"], cost)
    recipe = grown(Settings(**{**settings, "betas": tuple(settings["betas"])}), variant, content["arm"])
    return replace(recipe, from_scratch=content["from_scratch"], ranks=content["ranks"])


def steps_behind(folders: Sequence[Path]) -> list[int]:
    """The steps that are behind each training that is not finished, by its folder: those of its last checkpoint."""
    left = [folder for folder in folders if not (folder / MODEL / FILE).is_file()]
    return [0 if (last := last_checkpoint(folder)) is None else steps_of(last) for folder in left]


def training_work(
    name: str, make: Callable[[Path, Mapping[str, Any]], Any], behind: Sequence[int], slow: float = math.inf
) -> Work:
    """Trainings that `make` gives the Trainer of, and that go on behind so many steps each; see `Work` for `slow`."""

    def measure(seconds: float) -> WorkCost:
        times = training_times(make, seconds)
        return WorkCost(
            sum(times.seconds(done) for done in behind), len(behind) * times.model_bytes,
            _KEPT * times.checkpoint_bytes, f"{times.timed} of {times.steps:,} steps",
        )  # fmt: skip

    return Work(name, measure, slow=slow)


def recipe_works(
    base: Base, stack: Stack, splits: Splits, recipes: Mapping[str, tuple[Recipe, Sequence[int]]],
    arguments: Mapping[str, Any],
) -> Iterator[Work]:  # fmt: skip
    """The trainings of recipes by name, each with the steps behind those of its trainings that are not finished."""
    weights = sum(parameter.numel() for parameter in stack.model.parameters()) * positions(stack, splits)
    for name, (recipe, behind) in recipes.items():
        if behind:

            def make(folder: Path, quiet: Mapping[str, Any], recipe: Recipe = recipe) -> Any:
                return trainer_of(base, splits, recipe, 0, folder, arguments={**arguments, **quiet})

            steps = sum(recipe.steps(len(splits.train)) - done for done in behind)
            slow = slow_seconds(6.0 * weights * steps * recipe.settings.batch_size, _CALLS * steps)
            yield training_work(name, make, behind, slow)


def positions(stack: Stack, splits: Splits) -> int:
    """The positions of one example in the model."""
    example = splits.collate([splits.train[0]])
    if "input_ids" in example:
        return int(example["input_ids"].numel())
    config: Any = getattr(stack.model, "config", None)
    side, patch = getattr(config, "image_size", None), getattr(config, "patch_size", None)
    if isinstance(side, int) and isinstance(patch, int):
        return int((side // patch) ** 2 + 1)
    return max(int(value.numel()) for value in example.values())


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
