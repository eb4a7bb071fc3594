"""Robustness of trained models, ready to be measured: those of a run, or a single one.

Every model is surveyed once: under its own layer order, random orders and subsets of layers. Surveys are kept beside
the models, so a measurement that was stopped resumes with the next model.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from layerwise.data.model_location import location_of
from layerwise.data.splits import Splits
from layerwise.errors import RunError
from layerwise.experiments.cluster.pieces import Telling
from layerwise.experiments.experiment import Inputs, Prepared
from layerwise.experiments.merging.run import compare_arms
from layerwise.experiments.merging.sources import SourceModel, by_arm
from layerwise.experiments.merging.spread import MEASURE as MERGING
from layerwise.experiments.opening import open_model, quiet_transformers
from layerwise.experiments.provenance import in_words
from layerwise.experiments.reporter import Reporter
from layerwise.experiments.robustness.assessment import assess, discard_surveys, model_of, survey_kept
from layerwise.experiments.robustness.config import Robustness
from layerwise.experiments.sentences import describe_model
from layerwise.experiments.splits import read_splits
from layerwise.experiments.training_runs import (
    UNFINISHED,
    as_trained,
    check_enough,
    describe_splits,
    manifest_of_trainings,
    refuse_other_splits,
    split_notes,
    training_manifest,
    training_rows,
)
from layerwise.experiments.trainings import TrainedModel, finished_models
from layerwise.measure.activations.embedding import EmbeddingOptions
from layerwise.measure.interventions.edge_pruning import alpha_rows
from layerwise.measure.interventions.robustness import ROBUSTNESS
from layerwise.measure.interventions.survey import EvaluationGrid, conditions
from layerwise.measure.workers import Emit, Plain
from layerwise.results import Run
from layerwise.results.training_record import FILE, TrainingRecord, refined_at
from layerwise.results.vocabulary import ALPHA, TRAINING
from layerwise.stack import Stack, weight_hash
from layerwise.stack.load import resolve_device
from layerwise.train.load_trained import Trained, open_trained, saved_edges

ModelLoader = Callable[[Path], Trained]


class PreparedRobustness(Prepared):
    """Models to be surveyed on the test split; subclasses say which.

    `how` says in words how the models are computed: surveys that were computed otherwise are not these.
    """

    stack: Stack
    splits: Splits
    grid: EvaluationGrid
    inside: EmbeddingOptions
    open_model: ModelLoader
    how: str

    @abstractmethod
    def models(self, folder: Path) -> tuple[TrainedModel, ...]:
        """The models that are surveyed, where the rows go into the run `folder`."""

    def describe(self) -> Iterator[str]:
        """The model, the data, and how many plans each model is evaluated under."""
        yield describe_model(self.stack)
        yield describe_splits(self.splits)
        yield self.describe_survey()

    def describe_survey(self) -> str:
        """How many plans each model is evaluated under, and on how many examples."""
        wanted = sum(1 for _ in conditions(self.stack.depth, self.grid))
        examples = len(self.splits.test)
        evaluations = (wanted + self.grid.orders) * examples
        return (
            f"each model is evaluated under {wanted} conditions and {self.grid.orders} fixed orders on "
            f"{examples:,} examples: {evaluations:,} forward passes of an example at most"
        )

    def examples_of_survey(self) -> float:
        """The examples that go through a whole model in the survey of one, those of fewer layers counted by them."""
        depth = self.stack.depth
        passes = sum(condition.count / depth for condition in conditions(depth, self.grid)) + self.grid.orders
        return passes * len(self.splits.test)

    def discard(self, folder: Path) -> None:
        """Remove the surveys, so that every model is evaluated again."""
        discard_surveys(self.models(folder))

    def carry_out(self, piece: Plain, emit: Emit) -> Plain:
        """In a worker: the survey of one model, which is kept beside it."""
        model = model_of(piece)
        survey_kept(model, self.splits, self.grid, Telling(emit), open_model=self.open_model, how=self.how)

    def measure(self, run: Run, reporter: Reporter) -> None:
        """Survey every model that is not surveyed yet, and compute all rows from the surveys."""
        models = self.models(run.folder)
        records = {(each.arm, each.seed): TrainingRecord.read(each.folder) for each in models}
        trained = {model: record for model, record in records.items() if record is not None}
        run.store.replace_scores(TRAINING, training_rows(trained))
        weights = [(each, saved_edges(each.folder)) for each in models]
        alpha = [row for of, edges in weights if edges is not None for row in alpha_rows(of.arm, of.seed, edges)]
        if alpha:
            run.store.replace_scores(ALPHA, alpha)
        for chapter in (ROBUSTNESS, TRAINING):
            run.store.replace_notes(chapter, split_notes(self.splits))
        surveyed = assess(
            models, self.splits, self.grid, run, reporter,
            open_model=self.open_model, how=self.how, inside=self.inside, spread=self.spread,
        )  # fmt: skip
        if self.grid.layers and (surveyed or not run.store.scores(MERGING)):
            whole = [each for each in models if refined_at(each.arm) is None]
            arms = by_arm([SourceModel(each.arm, str(each.folder), records[each.arm, each.seed]) for each in whole])
            compare_arms(
                run, arms, self.splits, lambda source: self.open_model(Path(source.location)).stack, reporter,
                draws=self.grid.orders, seed=self.grid.seed,
            )  # fmt: skip


def questions_of(config: Robustness) -> EvaluationGrid:
    """What a survey measures, as the options say."""
    return EvaluationGrid(orders=config.orders, draws=config.draws, seed=config.seed, nodes=config.nodes)


def inside_of(config: Robustness, depth: int) -> EmbeddingOptions:
    """Which outputs are laid out, as the options say. Raises `MeasureError` for a layer that there is not."""
    inside = EmbeddingOptions(config.inside_images, config.inside_layers)
    inside.of(depth)
    return inside


class PreparedRunRobustness(PreparedRobustness):
    """Every finished model of a run of `layerwise train robust`; the rows go into that run.

    Raises `RunError` for a run of another kind, without a finished model, or trained on other splits.
    """

    def __init__(self, config: Robustness, reporter: Reporter, inputs: Inputs) -> None:
        quiet_transformers()
        self.folder = Path(config.model).expanduser()
        self.manifest = manifest_of_trainings(self.folder)
        self.grid = questions_of(config)
        models = finished_models(self.folder)
        if not models:
            raise RunError(f"{self.folder} {UNFINISHED}")
        self.open_model = partial(open_trained, device=config.device, dtype=config.dtype)
        self.how = in_words(resolve_device(config.device), config.dtype)
        self.stack = self.open_model(models[0].folder).stack
        self.inside = inside_of(config, self.stack.depth)
        self.stack.source = replace(self.stack.source, name=self.manifest.model)
        trained = as_trained(config, self.manifest)
        self.splits = read_splits(
            trained, self.stack, str(models[0].folder), reporter, seed=trained.seed, corpus=inputs.corpus
        )
        if self.splits.digest != self.manifest.corpus_hash:
            flags = ("--images or --text", "--limit", "--select-on", "--seed")
            raise refuse_other_splits(str(self.folder), self.manifest.corpus, self.splits, flags)
        check_enough(self.splits)

    def models(self, folder: Path) -> tuple[TrainedModel, ...]:
        """Every finished model of the run."""
        return finished_models(folder)


class PreparedModelRobustness(PreparedRobustness):
    """One model as it is, with a run of its own."""

    def __init__(self, config: Robustness, reporter: Reporter, inputs: Inputs) -> None:
        quiet_transformers()
        path = Path(config.model).expanduser()
        if inputs.stack is None and (path / FILE).is_file():
            trained = open_trained(path, device=config.device, dtype=config.dtype)
        else:
            stack = inputs.stack or open_model(
                config, model=config.model, dtype=config.dtype, trust_remote_code=config.trust_remote_code
            )
            trained = Trained(stack, None)
        self.path = path
        self.stack = trained.stack
        self.grid, self.inside = questions_of(config), inside_of(config, self.stack.depth)
        self.open_model = lambda folder: trained
        self.how = in_words(self.stack.device, config.dtype)
        self.splits = read_splits(
            config,
            self.stack,
            None if inputs.stack else location_of(config.model),
            reporter,
            seed=config.seed,
            corpus=inputs.corpus,
        )
        check_enough(self.splits)
        self.arm = trained.record.arm if trained.record is not None else Path(self.stack.source.name).name
        self.manifest = training_manifest(self.stack, weight_hash(self.stack.model), self.splits)

    def models(self, folder: Path) -> tuple[TrainedModel, ...]:
        """The one model, whose survey is kept in the run folder."""
        return (TrainedModel(self.arm, 0, self.path, folder),)
