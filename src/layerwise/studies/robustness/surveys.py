"""Survey models under layer orders and subsets, each once; surveys are stored next to the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch

from layerwise.data.splits import Splits
from layerwise.measure.activations.embedding import UMAP_BYTES, EmbeddingOptions, umap_installed
from layerwise.measure.interventions.accuracy import BATCH, inputs_and_labels
from layerwise.measure.interventions.survey import EvaluationGrid, conditions
from layerwise.measure.interventions.worth_by_position import EXAMPLES as POSITION_EXAMPLES
from layerwise.measure.weights.layer_weights import alpha_rows
from layerwise.results import Run
from layerwise.results.training_record import TrainingRecord, refined_at
from layerwise.results.vocabulary import ALPHA, MERGING, ROBUSTNESS, TRAINING
from layerwise.runner.price import timed_twice
from layerwise.runner.reporter import describe_model
from layerwise.runner.source_models import SourceModel, by_arm
from layerwise.runner.tasks import Remaining, Task, TaskSession
from layerwise.runner.training_runs import (
    TrainedModel,
    describe_splits,
    split_notes,
    training_rows,
)
from layerwise.stack import Stack
from layerwise.stack.inputs import evaluating
from layerwise.studies.robustness.assessment import assess, survey_name
from layerwise.studies.robustness.merge_steps import compare_arms
from layerwise.train.load_trained import Trained, saved_edges


@dataclass(frozen=True)
class SurveysUnit(Task[None]):
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

    def describe(self) -> Iterator[str]:
        """Describe the work in sentences."""
        yield describe_model(self.stack)
        yield describe_splits(self.splits)
        wanted, orders = sum(1 for _ in conditions(self.stack.depth, self.grid)), self.grid.orders
        examples = len(self.splits.test)
        yield (
            f"each model is evaluated under {wanted} conditions and {orders} fixed orders on {examples:,} examples: "
            f"{(wanted + orders) * examples:,} forward passes of an example at most"
        )

    def carry_out(self, session: TaskSession) -> None:
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
