"""The steps of robustness: models are trained or opened, and each is surveyed once under orders and subsets.

Surveys are stored next to the model, so a stopped run resumes with the next one. With tuning, each method is tried at
the same rates and batch sizes (the paper: 640 and 128), and validation chooses. A trial is a whole training with its
own seed, and never sees reported examples.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from layerwise.data.model_location import location_of
from layerwise.data.splits import Splits
from layerwise.errors import DataError, RunError
from layerwise.measure.activations.embedding import UMAP_BYTES, EmbeddingOptions, umap_installed
from layerwise.measure.interventions.accuracy import BATCH, inputs_and_labels
from layerwise.measure.interventions.survey import EvaluationGrid, conditions
from layerwise.measure.interventions.worth_by_position import EXAMPLES as POSITION_EXAMPLES
from layerwise.measure.weights.layer_weights import alpha_rows
from layerwise.page.sections.training import tuning_sentences
from layerwise.results import Run, Score
from layerwise.results.run import is_run
from layerwise.results.training_record import FILE, MODEL, RETRAINED, TrainingRecord, refined_at
from layerwise.results.vocabulary import ALPHA, MERGING, ROBUSTNESS, TRAINING, TUNING
from layerwise.runner.experiment import Inputs
from layerwise.runner.opening import base_model, in_words, open_model, quiet_transformers
from layerwise.runner.option import given_options
from layerwise.runner.price import timed_twice
from layerwise.runner.reporter import Reporter, describe_model
from layerwise.runner.source_models import SourceModel, by_arm
from layerwise.runner.steps import Completed, Outline, Remaining, Steps, Unit, UnitSession
from layerwise.runner.training_runs import (
    UNFINISHED,
    TrainedModel,
    as_trained,
    check_enough,
    describe_splits,
    discard_trainings,
    finished_models,
    manifest_of_trainings,
    read_splits,
    refuse_other_splits,
    split_notes,
    training_manifest,
    training_rows,
)
from layerwise.runner.trainings import (
    RateSweep,
    RecipeTraining,
    TrainingsUnit,
    chosen_row,
    trial,
    tried_rows,
)
from layerwise.stack import Stack, weight_hash
from layerwise.stack.inputs import evaluating
from layerwise.stack.load import resolve_device
from layerwise.studies.robustness.assessment import assess, discard_surveys, survey_name
from layerwise.studies.robustness.merge_steps import compare_arms
from layerwise.studies.robustness.options import DEMO, Robustness, RobustTraining
from layerwise.train.arguments import check_arguments
from layerwise.train.load_trained import Trained, open_trained, saved_edges
from layerwise.train.methods import COMPARED
from layerwise.train.processes import shared_recipe, training_settings
from layerwise.train.recipe import DEFAULTS_BY_MODEL, Recipe, Settings

Choice = Generator[Any, Any, tuple[tuple[Recipe, ...], list[Score]]]


@dataclass(frozen=True)
class SettingsGrid:
    """The rates and the sizes of batch that every method is tried at; of one alone nothing is chosen."""

    rates: tuple[float, ...]
    batches: tuple[int, ...]

    @classmethod
    def of(cls, config: RobustTraining, settings: Any) -> SettingsGrid | None:
        """The grid of the options, with the `settings` of all trainings for what is not tuned; `None` for no grid."""
        if not (config.learning_rates or config.batch_sizes):
            return None
        rates = dict.fromkeys(config.learning_rates or (settings.learning_rate,))
        return cls(tuple(rates), tuple(sorted({*(config.batch_sizes or (settings.batch_size,))})))

    def trials(self, recipe: Recipe) -> Iterator[RecipeTraining]:
        return (self.trial(recipe, rate, batch) for batch in self.batches for rate in self.rates)

    def trial(self, recipe: Recipe, rate: float, batch: int) -> RecipeTraining:
        shown = (rate,) if len(self.batches) == 1 else (rate, batch)
        return trial(tuned_recipe(recipe, rate, batch), *shown)

    def choose(self, recipes: tuple[Recipe, ...], unit: TrainingsUnit, reporter: Reporter) -> Choice:
        """Try every method at every point, on the splits of `unit`; the methods as tuned, and the rows that say how."""
        sweep: RateSweep[tuple[str, int]] = RateSweep()
        chosen, rows = [], []
        for recipe in recipes:
            for batch in self.batches:
                key = (recipe.arm, batch)
                for rate in sweep.due(key, self.rates):
                    (record,) = yield from replace(unit, trainings=[self.trial(recipe, rate, batch)])
                    sweep.note(key, rate, record)
            losses = {batch: sweep.losses[recipe.arm, batch] for batch in self.batches}
            best = min(self.batches, key=lambda batch: min(losses[batch].values()))
            chosen.append(tuned_recipe(recipe, sweep.best((recipe.arm, best)), best))
            own = [row for batch in self.batches for row in tried_rows(TUNING, recipe.arm, losses[batch], batch)]
            own.append(chosen_row(TUNING, recipe.arm, losses[best], best))
            for sentence in tuning_sentences(own):
                reporter.log(sentence)
            rows += own
        return tuple(chosen), rows


def tuned_recipe(recipe: Recipe, rate: float, batch: int) -> Recipe:
    return replace(recipe, settings=replace(recipe.settings, learning_rate=rate, batch_size=batch))


def splits_of_trials(splits: Splits, held_out: Callable[[], Splits]) -> Splits:
    """Return the splits of trials, without reported examples; `held_out()` if checkpoints are selected on those.

    Raises `DataError` for images without a split to report.
    """
    if not splits.selects_on_reported:
        return splits
    if not splits.origin and not hasattr(splits.test, "windows"):
        raise DataError(
            f"{splits.name} brings no images of its own to report, so that what chooses a rate or a batch would be "
            "among what is reported: leave out --select-on reported"
        )
    return held_out()


REDUCED = (9, 6, 3)
"""The depths at which models of the demo are trained for themselves, as in the paper's figure."""


@dataclass(frozen=True)
class SurveysUnit(Unit[None]):
    """The surveys of `models(folder)` on the test split, computed as `how` describes, and all rows from them."""

    models: Callable[[Path], tuple[TrainedModel, ...]]
    stack: Stack
    splits: Splits
    grid: EvaluationGrid
    open_model: Callable[[Path], Trained]
    how: str
    inside: EmbeddingOptions = field(default_factory=EmbeddingOptions)
    planned: int = 0
    """How many models there will be, where they are still to be trained."""

    def remaining(self, folder: Path, run: Run | None) -> Remaining | None:
        """Count the forward passes of the models that are not surveyed, in batches; UMAP is not among them."""
        name, models = survey_name(self.splits, self.grid, self.how), self.models(folder)
        done = sum((each.survey_folder / name).is_file() for each in models)
        depth, examples = self.stack.depth, len(self.splits.test)
        due = max(len(models), self.planned) - done
        if due <= 0:
            return None
        passes, memory = examples * (sum(1 for _ in conditions(depth, self.grid)) + self.grid.orders), 0
        if self.grid.layers:
            passes += depth * ((depth + 1) * min(POSITION_EXAMPLES, examples) + self.inside.images)
            memory = UMAP_BYTES if umap_installed() else 0
        batch = self.splits.collate([self.splits.test[index] for index in range(min(BATCH, examples))])
        inputs, _ = inputs_and_labels(batch, self.stack.device)

        def time_one() -> float:
            with evaluating(self.stack.model), torch.inference_mode():
                return timed_twice(lambda: self.stack.model(**inputs))

        return Remaining(due * passes / min(BATCH, examples), "passes over a batch", time_one, memory)

    def says(self) -> Iterator[str]:
        yield describe_model(self.stack)
        yield describe_splits(self.splits)
        wanted, orders = sum(1 for _ in conditions(self.stack.depth, self.grid)), self.grid.orders
        examples = len(self.splits.test)
        yield (
            f"each model is evaluated under {wanted} conditions and {orders} fixed orders on {examples:,} examples: "
            f"{(wanted + orders) * examples:,} forward passes of an example at most"
        )

    def carry_out(self, session: UnitSession) -> None:
        run, store, models = session.run, session.store, self.models(session.folder)
        records = {(each.arm, each.seed): TrainingRecord.read(each.folder) for each in models}
        trained = {model: record for model, record in records.items() if record is not None}
        store.replace_scores(TRAINING, training_rows(trained))
        weights = [(each, saved_edges(each.folder)) for each in models]
        alpha = [row for of, edges in weights if edges is not None for row in alpha_rows(of.arm, of.seed, edges)]
        if alpha:
            store.replace_scores(ALPHA, alpha)
        for chapter in (ROBUSTNESS, TRAINING):
            store.replace_notes(chapter, split_notes(self.splits))
        surveyed = assess(
            models,
            self.splits,
            self.grid,
            run,
            session.reporter,
            open_model=self.open_model,
            how=self.how,
            inside=self.inside,
        )
        if self.grid.layers and (surveyed or not store.scores(MERGING)):
            whole = [each for each in models if refined_at(each.arm) is None]
            arms = by_arm([SourceModel(each.arm, str(each.folder), records[each.arm, each.seed]) for each in whole])
            compare_arms(
                run,
                arms,
                self.splits,
                lambda source: self.open_model(Path(source.location)).stack,
                session.reporter,
                draws=self.grid.orders,
                seed=self.grid.seed,
            )


def robust_training(config: RobustTraining, reporter: Reporter, inputs: Inputs) -> Steps:
    reporter.log(f"loading {config.model}")
    grid = EvaluationGrid(orders=20, kept=(), layers=False, seed=config.seed)
    return (yield from _trained(config, reporter, inputs, grid, EmbeddingOptions()))


def robustness(config: Robustness, reporter: Reporter, inputs: Inputs) -> Steps:
    """Survey the models of a run, those that are trained from the demo, or a model as it is."""
    reporter.log(f"loading {config.model}")
    quiet_transformers()
    grid = EvaluationGrid(orders=config.orders, draws=config.draws, seed=config.seed, nodes=config.nodes)
    inside = EmbeddingOptions(config.inside_images, config.inside_layers)
    if inputs.stack is None and is_run(config.model):
        return (yield from _surveyed_run(config, reporter, inputs, grid, inside))
    if inputs.stack is None and config.model == DEMO:
        return (yield from _trained(_demo_training(config), reporter, inputs, grid, inside))
    return (yield from _surveyed_model(config, reporter, inputs, grid, inside))


def _trained(
    config: RobustTraining, reporter: Reporter, inputs: Inputs, grid: EvaluationGrid, inside: EmbeddingOptions
) -> Steps:
    """Train, then survey; every training resumes, and all torchrun processes take part.

    Raises `DataError`, `PlanError` and `TrainError` for data, methods and settings that do not fit the model.
    """
    config = replace(config, precision=config.resolved_precision(config.device, config.run))
    arguments: Mapping[str, Any] = config.trainer_arguments(config.device)
    check_arguments(arguments)
    opened = base_model(config.model, config, inputs.stack)
    stack, settings = opened.stack, DEFAULTS_BY_MODEL.get(config.model, Settings())
    options = config.options(settings)
    read = partial(
        read_splits,
        stack=stack,
        location=opened.location,
        reporter=reporter,
        seed=config.seed,
        corpus=inputs.corpus,
        augmentation=options.settings.augmentation,
        check=not config.new_head,
        pack=config.pack,
    )
    splits = read(config)
    recipes = config.recipes(settings, stack.depth)
    tuning = SettingsGrid.of(config, options.settings)
    inside.of(stack.depth)
    next(conditions(stack.depth, grid))  # a model of one layer is refused before it is trained
    check_enough(splits)
    base = opened.base(splits.classes if config.new_head else None)
    wanted = _wanted(recipes, config.seeds)
    trainings = TrainingsUnit(base, stack, splits, wanted, arguments)
    trials = (
        []
        if tuning is None
        else [
            replace(
                trainings,
                splits=splits_of_trials(splits, lambda: read(replace(config, select_on="held-out"))),
                trainings=[each for recipe in recipes for each in tuning.trials(recipe)],
            )
        ]
    )
    # Those of earlier commands are surveyed too.
    surveys = SurveysUnit(
        finished_models,
        stack,
        splits,
        grid,
        partial(open_trained, device=stack.device.type),
        in_words(stack.device, "auto"),
        inside,
        len(wanted),
    )

    def says() -> Iterator[str]:
        yield from surveys.says()
        yield from _training_sentences(recipes, config.seeds, len(splits.train))
        yield from (f"before them at least {len(unit.trainings)} trials choose rates and batches" for unit in trials)

    yield Outline(
        training_manifest(stack, base.weights, splits, settings=training_settings(arguments)),
        says,
        recipe=shared_recipe(options.to_json() | ({} if tuning is None else {"tuning": asdict(tuning)}), arguments),
        ahead=(*trials, trainings, surveys),
        is_estimated=True,
        refuse=(trials or [trainings])[0].refuse,
        discard=discard_trainings,
        models=lambda folder: {each.label: folder / each.folder / MODEL for each in wanted},
    )
    rows: list[Score] = []
    for unit in trials:
        assert tuning is not None
        recipes, rows = yield from tuning.choose(recipes, unit, reporter)
        trainings = replace(trainings, trainings=_wanted(recipes, config.seeds))
    yield from trainings
    yield from surveys
    return Completed(rows)


def _wanted(recipes: tuple[Recipe, ...], seeds: int) -> list[RecipeTraining]:
    return [RecipeTraining.of(recipe, seed) for seed in range(seeds) for recipe in recipes]


def _training_sentences(recipes: tuple[Recipe, ...], seeds: int, examples: int) -> Iterator[str]:
    count = len(recipes)
    yield f"{count} method{'s' * (count != 1)} of training, {seeds} seed{'s' * (seeds != 1)} each"
    epochs = {recipe.arm: recipe.settings.epochs for recipe in recipes}
    if len(set(epochs.values())) > 1:
        yield f"epochs: {', '.join(f'{arm} {each:g}' for arm, each in epochs.items())}"
    steps = seeds * sum(recipe.steps(examples) for recipe in recipes)
    read = seeds * sum(recipe.steps(examples) * recipe.settings.batch_size for recipe in recipes)
    yield f"training takes {steps:,} optimizer steps in all, forward and backward over {read:,} examples"


def _demo_training(config: Robustness) -> RobustTraining:
    shared = {name for name in RobustTraining.__dataclass_fields__ if name in Robustness.__dataclass_fields__}
    given = {name: value for name, value in given_options(config).items() if name in shared}
    methods = (*COMPARED, *(f"{RETRAINED}-{count}" for count in REDUCED))
    return RobustTraining(**given, methods=methods, baseline=False, precision="float32")


def _survey(surveys: SurveysUnit, outline: Outline) -> Generator[Any, Any, Completed]:
    yield replace(
        outline,
        says=surveys.says,
        ahead=(surveys,),
        is_estimated=True,
        lasts=False,
        discard=lambda folder: discard_surveys(surveys.models(folder)),
    )
    yield from surveys
    return Completed()


def _surveyed_run(
    config: Robustness, reporter: Reporter, inputs: Inputs, grid: EvaluationGrid, inside: EmbeddingOptions
) -> Steps:
    """Survey every finished model of a `layerwise train robust` run; raises `RunError` for another run or splits."""
    folder = Path(config.model).expanduser()
    manifest = manifest_of_trainings(folder)
    models = finished_models(folder)
    if not models:
        raise RunError(f"{folder} {UNFINISHED}")
    opens = partial(open_trained, device=config.device, dtype=config.dtype)
    stack = opens(models[0].folder).stack
    inside.of(stack.depth)
    stack.source = replace(stack.source, name=manifest.model)
    trained = as_trained(config, manifest)
    splits = read_splits(trained, stack, str(models[0].folder), reporter, seed=trained.seed, corpus=inputs.corpus)
    if splits.digest != manifest.corpus_hash:
        flags = ("--images or --text", "--limit", "--select-on", "--seed")
        raise refuse_other_splits(str(folder), manifest.corpus, splits, flags)
    check_enough(splits)
    how = in_words(resolve_device(config.device), config.dtype)
    surveys = SurveysUnit(finished_models, stack, splits, grid, opens, how, inside)
    return (yield from _survey(surveys, Outline(manifest, list, folder=folder)))


def _surveyed_model(
    config: Robustness, reporter: Reporter, inputs: Inputs, grid: EvaluationGrid, inside: EmbeddingOptions
) -> Steps:
    path = Path(config.model).expanduser()
    if inputs.stack is None and (path / FILE).is_file():
        trained = open_trained(path, device=config.device, dtype=config.dtype)
    else:
        stack = inputs.stack or open_model(
            config, model=config.model, dtype=config.dtype, trust_remote_code=config.trust_remote_code
        )
        trained = Trained(stack, None)
    stack = trained.stack
    inside.of(stack.depth)
    location = None if inputs.stack else location_of(config.model)
    splits = read_splits(config, stack, location, reporter, seed=config.seed, corpus=inputs.corpus)
    check_enough(splits)
    arm = trained.record.arm if trained.record is not None else Path(stack.source.name).name
    surveys = SurveysUnit(
        lambda folder: (TrainedModel(arm, 0, path, folder),),
        stack,
        splits,
        grid,
        lambda _: trained,
        in_words(stack.device, config.dtype),
        inside,
    )
    manifest = training_manifest(stack, weight_hash(stack.model), splits)
    return (yield from _survey(surveys, Outline(manifest, surveys.says)))
