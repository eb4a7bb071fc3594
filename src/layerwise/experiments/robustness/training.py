"""Trainings of several methods and seeds from one base model, then a survey of every model that came of them.

Every training resumes by itself, so the same command resumes an interrupted run. Under torchrun every process takes
part in the trainings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from layerwise.experiments.base_model import BaseModel, base_model
from layerwise.experiments.cluster.pieces import Telling, carried_out, refuse_unseen
from layerwise.experiments.engines.evaluations import evaluation_work
from layerwise.experiments.engines.trainings import recipe_works, steps_behind
from layerwise.experiments.engines.work import Work
from layerwise.experiments.experiment import Inputs
from layerwise.experiments.option import given_options
from layerwise.experiments.provenance import in_words
from layerwise.experiments.reporter import Reporter
from layerwise.experiments.robustness.config import Robustness, RobustTraining
from layerwise.experiments.robustness.run import PreparedRobustness, questions_of
from layerwise.experiments.sentences import duration
from layerwise.experiments.splits import read_splits
from layerwise.experiments.training_runs import check_enough, training_manifest
from layerwise.experiments.trainings import (
    TrainedModel,
    discard_trainings,
    finished_models,
    training_progress,
)
from layerwise.measure.activations.embedding import EmbeddingOptions
from layerwise.measure.interventions.survey import EvaluationGrid, conditions
from layerwise.measure.workers import Emit, Plain
from layerwise.results import Run
from layerwise.results.training_record import FILE, MODEL, RETRAINED
from layerwise.train.arguments import check_arguments
from layerwise.train.checkpoint_dir import existing_run
from layerwise.train.load_trained import open_trained
from layerwise.train.methods import COMPARED
from layerwise.train.processes import shared_recipe, training_settings
from layerwise.train.recipe import DEFAULTS_BY_MODEL, Recipe, Settings
from layerwise.train.training import train, training_config

REDUCED = (9, 6, 3)
"""The depths at which models of the demo are trained for themselves, as in the paper's figure."""


class PreparedRobustTraining(PreparedRobustness):
    """Trainings whose base model and data are open, and whose recipes are checked.

    Raises `DataError`, `PlanError` and `TrainError` for data, methods and settings that do not fit the model.
    """

    def __init__(
        self,
        config: RobustTraining,
        reporter: Reporter,
        inputs: Inputs,
        grid: EvaluationGrid | None = None,
        inside: EmbeddingOptions | None = None,
    ) -> None:
        config = replace(config, precision=config.resolved_precision(config.device, config.run))
        self.seeds = config.seeds
        self.arguments: Mapping[str, Any] = config.trainer_arguments(config.device)
        check_arguments(self.arguments)
        opened = base_model(config.model, config, inputs.stack)
        settings = DEFAULTS_BY_MODEL.get(config.model, Settings())
        options = config.options(settings)
        self.stack = opened.stack
        self.splits = read_splits(
            config, self.stack, opened.location, reporter, seed=config.seed, corpus=inputs.corpus,
            augmentation=options.settings.augmentation, check=not config.new_head, pack=config.pack,
        )  # fmt: skip
        self.grid = grid or EvaluationGrid(orders=20, kept=(), layers=False, seed=config.seed)
        self.inside = inside or EmbeddingOptions()
        self.recipes = config.recipes(settings, self.stack.depth)
        self.inside.of(self.stack.depth)
        next(conditions(self.stack.depth, self.grid))  # a model of one layer is refused before it is trained
        check_enough(self.splits)
        self._open(config, opened)
        self.manifest = training_manifest(
            self.stack, self.base.weights, self.splits, settings=training_settings(self.arguments)
        )
        self.recipe = shared_recipe(options.to_json(), self.arguments)

    def _open(self, config: RobustTraining, opened: BaseModel) -> None:
        self.base = opened.base(self.splits.classes if config.new_head else None)
        self.open_model = partial(open_trained, device=self.stack.device.type)
        self.how = in_words(self.stack.device, "auto")

    def models(self, folder: Path) -> tuple[TrainedModel, ...]:
        """Every finished model of the run, those of earlier commands too."""
        return finished_models(folder)

    def describe(self) -> Iterator[str]:
        """The model, the data, how many trainings there are, and what they cost."""
        yield from super().describe()
        count, seeds = len(self.recipes), self.seeds
        yield f"{count} method{'s' * (count != 1)} of training, {seeds} seed{'s' * (seeds != 1)} each"
        examples = len(self.splits.train)
        steps = seeds * sum(recipe.steps(examples) for recipe in self.recipes)
        read = seeds * sum(recipe.steps(examples) * recipe.settings.batch_size for recipe in self.recipes)
        yield f"training takes {steps:,} optimizer steps in all, forward and backward over {read:,} examples"

    def check(self, folder: Path) -> None:
        """Refuse a folder that holds another training, before any is begun."""
        for recipe, seed, path in self._trainings(folder):
            existing_run(path, training_config(self.base, self.splits, recipe, seed))

    def discard(self, folder: Path) -> None:
        """Remove every training of the run, finished or not."""
        discard_trainings(folder)

    def works(self, folder: Path, run: Run | None) -> Iterator[Work]:
        """The trainings that are not finished, and the surveys of their models."""
        left = {
            recipe.arm: (recipe, steps_behind([path for each, _, path in self._trainings(folder) if each is recipe]))
            for recipe in self.recipes
        }
        models = sum(len(behind) for _, behind in left.values())
        surveyed = models * self.examples_of_survey()
        if not models:
            return
        yield evaluation_work("surveys", self.stack, self.splits, surveyed / len(self.splits.test))
        yield from recipe_works(self.base, self.stack, self.splits, left, self.arguments)

    def train(self, folder: Path, reporter: Reporter) -> None:
        """Train what is not trained yet."""
        pieces: list[Plain] = []
        for recipe, seed, path in self._trainings(folder):
            piece: Plain = {"part": "training", "arm": recipe.arm, "seed": seed, "folder": str(folder.absolute())}
            if (path / MODEL / FILE).is_file():
                self._train_piece(piece, reporter)
            else:
                pieces.append(piece)
        for number in carried_out(self.spread, pieces, self._train_piece, reporter):
            arm, seed = pieces[number]["arm"], pieces[number]["seed"]
            is_there = (folder / arm / f"seed-{seed}" / MODEL / FILE).is_file()
            refuse_unseen(f"{arm}/{seed}", self.spread, is_there)

    def models_of(self, folder: Path) -> Mapping[str, Path]:
        """The model of every method and seed."""
        return {f"{recipe.arm}/{seed}": path / MODEL for recipe, seed, path in self._trainings(folder)}

    def carry_out(self, piece: Plain, emit: Emit) -> Plain:
        """In a worker: one training, or one survey."""
        if piece["part"] == "training":
            self._train_piece(piece, Telling(emit))
        else:
            super().carry_out(piece, emit)

    def _train_piece(self, piece: Plain, reporter: Reporter) -> None:
        """Carry out one training, which `train` made a piece of."""
        wanted = (piece["arm"], piece["seed"])
        trainings = self._trainings(Path(piece["folder"]))
        recipe, seed, path = next(each for each in trainings if (each[0].arm, each[1]) == wanted)
        label = f"{recipe.arm}/{seed}"
        progress = training_progress(reporter, label)
        done = train(self.base, self.splits, recipe, seed, path, progress=progress, arguments=self.arguments)
        reporter.log(
            f"{label}: {done.steps:,} step{'s' * (done.steps != 1)} in {duration(done.seconds)}, "
            f"least validation loss at step {done.best_step:,}"
        )

    def _trainings(self, folder: Path) -> Iterator[tuple[Recipe, int, Path]]:
        """Every training: its recipe, its seed, and its folder in that of the run."""
        for seed in range(self.seeds):
            for recipe in self.recipes:
                yield recipe, seed, folder / recipe.arm / f"seed-{seed}"


def demo_training(config: Robustness, reporter: Reporter, inputs: Inputs) -> PreparedRobustTraining:
    """Every method that LayerShuffle is compared with, and models at reduced depths, from the demo."""
    shared = {name for name in RobustTraining.__dataclass_fields__ if name in Robustness.__dataclass_fields__}
    given = {name: value for name, value in given_options(config).items() if name in shared}
    methods = (*COMPARED, *(f"{RETRAINED}-{count}" for count in REDUCED))
    training = RobustTraining(**given, methods=methods, baseline=False, precision="float32")
    inside = EmbeddingOptions(config.inside_images, config.inside_layers)
    return PreparedRobustTraining(training, reporter, inputs, questions_of(config), inside)
