"""Train or open models, then survey them: evaluate each model with other layer orders, and with some of its layers.

All methods are tuned over the same learning rates and batch sizes, and the validation loss selects the best. Each trial
is a complete training run with a separate seed, and never sees the examples on which results are reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from layerwise.data.model_location import location_of
from layerwise.data.splits import Splits
from layerwise.data.text.corpus import Corpus
from layerwise.errors import DataError, RunError
from layerwise.measure.activations.embedding import EmbeddingOptions
from layerwise.measure.interventions.survey import EvaluationGrid, conditions
from layerwise.page.sections.training import describe_tuning
from layerwise.results import Manifest, Score
from layerwise.results.training_record import FILE, MODEL, RETRAINED
from layerwise.results.vocabulary import TUNING
from layerwise.runner.opening import BaseModel, describe_numerics, open_base, open_stack
from layerwise.runner.reporter import Reporter
from layerwise.runner.study import RunDescription, start_run
from layerwise.runner.tasks import Study
from layerwise.runner.training_options import TrainingData, trainer_arguments
from layerwise.runner.training_runs import (
    UNFINISHED,
    TrainedModel,
    check_test_size,
    discard_trainings,
    finished_models,
    make_training_manifest,
    read_splits,
    read_training_manifest,
    refuse_other_splits,
)
from layerwise.runner.trainings import (
    RecipeTraining,
    TrainingsTask,
    make_choice_row,
    make_trial,
    make_trial_rows,
    select_rate,
    sweep_rates,
)
from layerwise.stack import Stack, weight_hash
from layerwise.stack.load import resolve_device
from layerwise.studies.robustness.surveys import SurveysUnit, discard_surveys
from layerwise.train.load_trained import Trained, open_trained
from layerwise.train.methods import COMPARED, Options, PositionOptions, PredictionOptions, recipes
from layerwise.train.processes import shared_recipe, training_settings
from layerwise.train.recipe import DEFAULTS_BY_MODEL, Recipe, Settings

DEMO = "demo-vit"

REDUCED = (9, 6, 3)
"""Numbers of layers for which the demo retrains models, as in the paper's figure."""

SPLIT_FLAGS = ("--images or --text", "--limit", "--select-on", "--seed")


def train_then_survey(
    opened: BaseModel,
    splits: Splits,
    planned: tuple[Recipe, ...],
    *,
    seeds: int,
    options: Options,
    arguments: Mapping[str, Any],
    grid: EvaluationGrid,
    inside: EmbeddingOptions,
    new_head: bool = False,
    tuning: SettingsGrid | None = None,
    trial_splits: Splits | None = None,
    on_several_processes: bool = True,
) -> Path:
    stack = opened.stack
    inside.select_layers(stack.depth)
    next(conditions(stack.depth, grid))  # raises for a model of one layer
    check_test_size(splits)
    base = opened.base(splits.classes if new_head else None)
    planned_trainings = list_trainings(planned, seeds)
    trainings = TrainingsTask(base, splits, planned_trainings, arguments)
    trials: list[TrainingsTask] = []
    if tuning is not None:
        tried = [each for recipe in planned for each in tuning.trials(recipe)]
        trials = [replace(trainings, splits=trial_splits or splits, trainings=tried)]
    # The run can also contain models from earlier commands.
    surveys = SurveysUnit(
        finished_models,
        stack,
        splits,
        grid,
        partial(open_trained, device=stack.device.type),
        describe_numerics(stack.device, "auto"),
        inside,
        len(planned_trainings),
    )
    tuned_by = {} if tuning is None else {"tuning": asdict(tuning)}
    description = RunDescription(
        manifest=make_training_manifest(stack, base.weights, splits, settings=training_settings(arguments)),
        lines=[
            *surveys.describe(),
            *describe_trainings(planned, seeds, len(splits.train)),
            *(f"at least {len(task.trainings)} trials to select learning rates and batch sizes" for task in trials),
        ],
        recipe=shared_recipe(options.to_json() | tuned_by, arguments),
        tasks=(*trials, trainings, surveys),
        is_estimated=True,
        refuse=(trials or [trainings])[0].refuse,
        discard=discard_trainings,
        models=lambda folder: {each.label: folder / each.folder / MODEL for each in planned_trainings},
        on_several_processes=on_several_processes,
    )
    with start_run(description) as study:
        rows: list[Score] = []
        for task in trials:
            assert tuning is not None
            planned, rows = tuning.choose(planned, task, study)
            trainings = replace(trainings, trainings=list_trainings(planned, seeds))
        study.execute(trainings)
        study.execute(surveys)
        study.write(rows)
    return study.folder


def train_demo(
    data: TrainingData,
    reporter: Reporter,
    *,
    device: str,
    seeds: int,
    seed: int,
    grid: EvaluationGrid,
    inside: EmbeddingOptions,
) -> Path:
    opened = open_base(DEMO, device=device)
    settings = replace(DEFAULTS_BY_MODEL[DEMO], precision="float32")
    options = Options(settings, extensions=(PositionOptions(), PredictionOptions()))
    methods = (*COMPARED, *(f"{RETRAINED}-{count}" for count in REDUCED))
    splits = read_splits(
        data,
        opened.stack,
        opened.location,
        reporter,
        seed=seed,
        augmentation=settings.augmentation,
    )
    return train_then_survey(
        opened,
        splits,
        recipes(methods, options, opened.stack.depth),
        seeds=seeds,
        options=options,
        arguments=trainer_arguments((), device=device),
        grid=grid,
        inside=inside,
        on_several_processes=False,
    )


def list_trainings(recipes: Sequence[Recipe], seeds: int) -> list[RecipeTraining]:
    return [RecipeTraining.of(recipe, seed) for seed in range(seeds) for recipe in recipes]


def describe_trainings(recipes: Sequence[Recipe], seeds: int, examples: int) -> Iterator[str]:
    count = len(recipes)
    yield f"{count} training method{'s' * (count != 1)}, {seeds} seed{'s' * (seeds != 1)} each"
    epochs = {recipe.variant: recipe.settings.epochs for recipe in recipes}
    if len(set(epochs.values())) > 1:
        yield f"epochs: {', '.join(f'{variant} {each:g}' for variant, each in epochs.items())}"
    steps = seeds * sum(recipe.steps(examples) for recipe in recipes)
    read = seeds * sum(recipe.steps(examples) * recipe.settings.batch_size for recipe in recipes)
    yield f"training takes {steps:,} optimizer steps, forward and backward over {read:,} examples"


def survey_run(
    folder: Path,
    data: TrainingData,
    corpus: Corpus | None,
    reporter: Reporter,
    *,
    grid: EvaluationGrid,
    inside: EmbeddingOptions,
    device: str,
    dtype: str,
    seed: int | None,
) -> Path:
    manifest = read_training_manifest(folder)
    models = finished_models(folder)
    if not models:
        raise RunError(f"{folder} {UNFINISHED}")
    open_one = partial(open_trained, device=device, dtype=dtype)
    stack = open_one(models[0].folder).stack
    inside.select_layers(stack.depth)
    stack.source = replace(stack.source, name=manifest.model)
    trained_seed = int(manifest.experiment.get("seed", 0)) if seed is None else seed
    splits = read_splits(
        data.as_trained(manifest), stack, str(models[0].folder), reporter, seed=trained_seed, corpus=corpus
    )
    if splits.digest != manifest.corpus_hash:
        raise refuse_other_splits(str(folder), manifest.corpus, splits, SPLIT_FLAGS)
    check_test_size(splits)
    how = describe_numerics(resolve_device(device), dtype)
    surveys = SurveysUnit(finished_models, stack, splits, grid, open_one, how, inside)
    return _survey(surveys, manifest, folder)


def survey_model(
    trained: Trained,
    location: str | None,
    data: TrainingData,
    corpus: Corpus | None,
    reporter: Reporter,
    *,
    grid: EvaluationGrid,
    inside: EmbeddingOptions,
    dtype: str,
    seed: int,
) -> Path:
    stack = trained.stack
    inside.select_layers(stack.depth)
    splits = read_splits(
        data, stack, None if location is None else location_of(location), reporter, seed=seed, corpus=corpus
    )
    check_test_size(splits)
    name = trained.record.variant if trained.record is not None else Path(stack.source.name).name
    path = Path(location or stack.source.name).expanduser()
    surveys = SurveysUnit(
        lambda folder: (TrainedModel(name, 0, path, folder),),
        stack,
        splits,
        grid,
        lambda _: trained,
        describe_numerics(stack.device, dtype),
        inside,
    )
    return _survey(surveys, make_training_manifest(stack, weight_hash(stack.model), splits))


def open_surveyed(model: str | Path, reporter: Reporter, *, device: str, dtype: str, **loading: Any) -> Trained:
    path = Path(model).expanduser()
    if (path / FILE).is_file():
        return open_trained(path, device=device, dtype=dtype)
    stack: Stack = open_stack(str(model), reporter, device=device, dtype=dtype, **loading)
    return Trained(stack, None)


def _survey(surveys: SurveysUnit, manifest: Manifest, folder: Path | None = None) -> Path:
    description = RunDescription(
        manifest=manifest,
        lines=list(surveys.describe()),
        folder=folder,
        tasks=(surveys,),
        is_estimated=True,
        stays_complete=False,
        discard=lambda folder: discard_surveys(surveys.models(folder)),
    )
    with start_run(description) as study:
        study.execute(surveys)
    return study.folder


@dataclass(frozen=True)
class SettingsGrid:
    """The learning rates and batch sizes over which every method is tuned."""

    rates: tuple[float, ...]
    batches: tuple[int, ...]

    @classmethod
    def create(cls, rates: Sequence[float], batches: Sequence[int], settings: Settings) -> SettingsGrid | None:
        """Return the grid, or None if neither learning rates nor batch sizes are given.

        If only one of them is given, the other has the value in `settings`.
        """
        if not (rates or batches):
            return None
        tried = dict.fromkeys(rates or (settings.learning_rate,))
        return cls(tuple(tried), tuple(sorted({*(batches or (settings.batch_size,))})))

    def trials(self, recipe: Recipe) -> Iterator[RecipeTraining]:
        return (self.trial(recipe, rate, batch) for batch in self.batches for rate in self.rates)

    def trial(self, recipe: Recipe, rate: float, batch: int) -> RecipeTraining:
        shown = (rate,) if len(self.batches) == 1 else (rate, batch)
        return make_trial(tune_recipe(recipe, rate, batch), *shown)

    def choose(
        self, recipes: tuple[Recipe, ...], task: TrainingsTask, study: Study
    ) -> tuple[tuple[Recipe, ...], list[Score]]:
        """Tune every method on the splits of `task`, and return the tuned methods and the rows of the trials."""
        tuned, rows = [], []
        for recipe in recipes:

            def loss_at(rate: float, batch: int, recipe: Recipe = recipe) -> float:
                (record,) = study.execute(replace(task, trainings=[self.trial(recipe, rate, batch)]))
                return min(record.validation_losses)

            losses = {batch: sweep_rates(self.rates, partial(loss_at, batch=batch)) for batch in self.batches}
            best = min(self.batches, key=lambda batch: min(losses[batch].values()))
            tuned.append(tune_recipe(recipe, select_rate(losses[best]), best))
            added = [
                row for batch in self.batches for row in make_trial_rows(TUNING, recipe.variant, losses[batch], batch)
            ]
            added.append(make_choice_row(TUNING, recipe.variant, losses[best], best))
            for sentence in describe_tuning(added):
                study.reporter.log(sentence)
            rows += added
        return tuple(tuned), rows


def tune_recipe(recipe: Recipe, rate: float, batch: int) -> Recipe:
    return replace(recipe, settings=replace(recipe.settings, learning_rate=rate, batch_size=batch))


def choose_trial_splits(splits: Splits, held_out: Callable[[], Splits]) -> Splits:
    """Return splits for trials, which must not use the examples on which results are reported.

    If `splits` selects checkpoints on these examples, the result of `held_out` is returned, otherwise `splits`.
    """
    if not splits.selects_on_reported:
        return splits
    if not splits.origin and not hasattr(splits.test, "windows"):
        raise DataError(
            "With --select-on reported, the trials need examples that are not reported, and "
            f"{splits.name} has none to spare. Pass --select-on held-out."
        )
    return held_out()
