"""Survey trained models one after the other, and compute all rows of the robustness report from the surveys.

The results of a model are stored next to it (as `survey-<key>.npz` and `inside-<key>.json`), so that an interrupted run
resumes with the next model. The key is a hash of the data, conditions and numerical settings.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from torch.utils.data import DataLoader

from layerwise.data.splits import Splits
from layerwise.measure.activations.attention_by_position import attention_by_position
from layerwise.measure.activations.by_position import MAX_EXAMPLES as POSITION_EXAMPLES
from layerwise.measure.activations.by_position import STREAM, branch_norms, importance_by_position, probe_positions
from layerwise.measure.activations.embedding import UMAP_BYTES, EmbeddingOptions, embedding, is_umap_installed
from layerwise.measure.contrasts.contrast import CONTRAST, replace_claims
from layerwise.measure.contrasts.shuffled import CLAIMS, NULLS, SHUFFLED, Answers, contrast_orders, contrast_positions
from layerwise.measure.contrasts.trainings import average_scored
from layerwise.measure.interventions import robustness as rows
from layerwise.measure.interventions.accuracy import BATCH, split_labels
from layerwise.measure.interventions.survey import Condition, EvaluationGrid, Survey, conditions, survey
from layerwise.measure.stats.estimate import Bounded
from layerwise.measure.stats.statistics import Numbers, wilson
from layerwise.measure.weights.layer_weights import alpha_rows
from layerwise.plan.samplers import SeededSampler, Shuffle
from layerwise.results import Run, Score
from layerwise.results import vocabulary as vocab
from layerwise.results.rows import Note
from layerwise.results.run import write_whole
from layerwise.results.training_record import RETRAINED, TrainingRecord, parse_refined_depth
from layerwise.runner.price import time_second_call
from layerwise.runner.reporter import Reporter, describe_model
from layerwise.runner.source_models import SourceModel, group_by_variant
from layerwise.runner.tasks import Remaining, Study, Task
from layerwise.runner.training_runs import TrainedModel, describe_split_limits, describe_splits, make_training_rows
from layerwise.stack import Stack
from layerwise.stack.inputs import evaluating
from layerwise.studies.robustness.merging import compare_variants
from layerwise.studies.robustness.node_loss import node_loss_rows
from layerwise.studies.robustness.position_importance import position_importance_rows
from layerwise.train.load_trained import Trained, saved_edges

INSIDE = (vocab.OUTPUT_LAYOUT, vocab.ATTENTION, vocab.BRANCHES)
"""Measures inside a model, which are computed for one model of each variant."""


@dataclass(frozen=True)
class SurveysUnit(Task[None]):
    """The task that surveys the models in the run on the test split, and writes all rows.

    `models` returns the models in a run directory, and `planned` is their number when training is complete. `how`
    describes the numerical settings. `inside` selects the layer outputs for the UMAP layout. Models that were trained
    with fewer layers (such as `retrained-6`) are evaluated only with that number of layers, and form one variant.
    """

    models: Callable[[Path], Sequence[TrainedModel]]
    stack: Stack
    splits: Splits
    grid: EvaluationGrid
    open_model: Callable[[Path], Trained]
    how: str
    inside: EmbeddingOptions = field(default_factory=EmbeddingOptions)
    planned: int = 0

    def remaining(self, folder: Path, run: Run | None) -> Remaining | None:
        """Count the remaining forward passes over a batch. The time of UMAP is not included."""
        models = self.models(folder)
        done = sum(self._survey_path(each).is_file() for each in models)
        depth, examples = self.stack.depth, len(self.splits.test)
        due = max(len(models), self.planned) - done
        if due <= 0:
            return None
        passes, memory = examples * (sum(1 for _ in conditions(depth, self.grid)) + self.grid.orders), 0
        if self.grid.layers:
            passes += depth * ((depth + 1) * min(POSITION_EXAMPLES, examples) + self.inside.images)
            memory = UMAP_BYTES if is_umap_installed() else 0
        batch = self.splits.collate([self.splits.test[index] for index in range(min(BATCH, examples))])
        inputs, _ = split_labels(batch, self.stack.device)

        def time_one() -> float:
            with evaluating(self.stack.model), torch.inference_mode():
                return time_second_call(lambda: self.stack.model(**inputs))

        return Remaining(due * passes / min(BATCH, examples), "passes over a batch", time_one, memory)

    def describe(self) -> Iterator[str]:
        yield describe_model(self.stack)
        yield describe_splits(self.splits)
        count, orders = sum(1 for _ in conditions(self.stack.depth, self.grid)), self.grid.orders
        examples = len(self.splits.test)
        yield (
            f"each model is evaluated under {count} conditions and {orders} fixed orders on {examples:,} examples: "
            f"at most {(count + orders) * examples:,} forward passes of one example"
        )

    def execute(self, study: Study) -> None:
        run, store, models = study.run, study.store, self.models(study.folder)
        records = {(each.variant, each.seed): TrainingRecord.read(each.folder) for each in models}
        trained = {model: record for model, record in records.items() if record is not None}
        store.replace_scores(vocab.TRAINING, make_training_rows(trained))
        weights = [(each, saved_edges(each.folder)) for each in models]
        alpha = [row for of, edges in weights if edges is not None for row in alpha_rows(of.variant, of.seed, edges)]
        if alpha:
            store.replace_scores(vocab.ALPHA, alpha)
        for chapter in (vocab.ROBUSTNESS, vocab.TRAINING):
            store.replace_notes(chapter, describe_split_limits(self.splits))
        surveyed = self.assess(models, run, study.reporter)
        if self.grid.layers and (surveyed or not store.scores(vocab.MERGING)):
            whole = [each for each in models if parse_refined_depth(each.variant) is None]
            variants = group_by_variant(
                [SourceModel(each.variant, str(each.folder), records[each.variant, each.seed]) for each in whole]
            )
            compare_variants(
                run,
                variants,
                self.splits,
                lambda source: self.open_model(Path(source.location)).stack,
                study.reporter,
                draws=self.grid.orders,
                seed=self.grid.seed,
            )

    def assess(self, models: Sequence[TrainedModel], run: Run, reporter: Reporter) -> bool:
        """Survey every model on the test split and store the rows. Returns True if any survey was missing."""
        surveys: dict[str, dict[int, Survey]] = {}
        first_models: dict[str, TrainedModel] = {}
        predicted: dict[str, dict[int, Answers]] = {}
        any_new = False
        for model in models:
            any_new = any_new or not self._survey_path(model).is_file()
            result = self._survey(model, reporter)
            variant = model.variant if parse_refined_depth(model.variant) is None else RETRAINED
            by_seed = surveys.setdefault(variant, {})
            by_seed[model.seed] = _merge_surveys(by_seed.get(model.seed), result)
            predicted.setdefault(model.variant, {})[model.seed] = result.positions
            if variant != RETRAINED:
                first_models.setdefault(variant, model)
        store_surveys(run, surveys, self.splits, self.grid)
        run.store.replace_scores(vocab.POSITION, position_rows(predicted))
        if self.grid.layers:
            inside = [self._look_inside(model, reporter) for model in first_models.values()]
            for measure in INSIDE:
                notes = (note.text for _, notes in inside for note in notes if note.measure == measure)
                run.store.replace_notes(measure, notes)
                run.store.replace_scores(measure, [row for own, _ in inside for row in own if row.measure == measure])
        return any_new

    def _survey_path(self, model: TrainedModel) -> Path:
        return model.survey_folder / f"survey-{self._key(asdict(self.grid))}.npz"

    def _key(self, *questions: object) -> str:
        content = json.dumps([self.splits.digest, *questions, self.how], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:8]

    def _survey(self, model: TrainedModel, reporter: Reporter) -> Survey:
        path = self._survey_path(model)
        if path.is_file():
            return Survey.read(path)
        trained, splits, grid = self.open_model(model.folder), self.splits, self.grid
        count = parse_refined_depth(model.variant)
        only = None
        if count is not None:
            only = [Condition(count, "even", True)] + ([Condition(count, "even", False)] if count > 1 else [])
        result = survey(
            trained.stack,
            splits.test,
            splits.collate,
            grid,
            only=only,
            progress=lambda done, total: reporter.progress(f"surveying {model.label}", done / total),
        )
        result = replace(result, positions=self._predict_positions(trained))
        if grid.layers and model.variant in NULLS:
            # The probe must not be fitted on reported examples.
            fitted_on = splits.train if splits.selects_on_reported else splits.validation
            right = probe_positions(trained.stack, fitted_on, splits.test, splits.collate, grid.batch_size, grid.seed)
            result = replace(result, probed=right)
        if grid.layers and count is None and (model.variant in (SHUFFLED, *NULLS) or model.seed == 0):
            tables = importance_by_position(trained.stack, splits.test, splits.collate, seed=grid.seed)
            result = replace(result, tables=tables)
        path.parent.mkdir(parents=True, exist_ok=True)
        result.save(path)
        return result

    def _predict_positions(self, model: Trained) -> dict[int, Numbers]:
        if model.prediction is None:
            return {}
        stack, splits = model.stack, self.splits
        draws = SeededSampler(Shuffle(), stack.depth, self.grid.seed, stream=STREAM)
        size = self.grid.batch_size(len(splits.test))
        results: dict[int, list[tuple[int, int]]] = {position: [] for position in range(stack.depth)}
        with evaluating(stack.model), torch.inference_mode():
            for number, batch in enumerate(DataLoader(splits.test, batch_size=size, collate_fn=splits.collate)):
                inputs = {name: tensor.to(stack.device) for name, tensor in batch.items() if name != "labels"}
                with stack.under(draws.at(number), single_pass=True):
                    stack.model(**inputs)
                for position, hit in model.prediction.hits().items():
                    results[position].append((int(hit.sum()), len(hit)))
        return {position: np.array(answers, dtype=np.float64).T for position, answers in results.items()}

    def _look_inside(self, model: TrainedModel, reporter: Reporter) -> tuple[list[Score], list[Note]]:
        key = self._key(asdict(self.inside), self.grid.seed, is_umap_installed())
        path = model.survey_folder / f"inside-{key}.json"
        if not path.is_file():
            reporter.log(f"inside {model.variant}: branch norms and attention by position, and UMAP of outputs")
            inputs = (self.open_model(model.folder).stack, model.variant, self.splits.test, self.splits.collate)
            parts = (
                embedding(*inputs, self.inside, seed=self.grid.seed),
                attention_by_position(*inputs, seed=self.grid.seed),
                branch_norms(*inputs, seed=self.grid.seed),
            )
            scores, notes = ([row for part in parts for row in part[at]] for at in range(2))
            write_whole(path, msgspec.json.encode((scores, notes)))
        return msgspec.json.decode(path.read_bytes(), type=tuple[list[Score], list[Note]])


def discard_surveys(models: Iterable[TrainedModel]) -> None:
    for model in models:
        for pattern in ("survey-*.npz", "inside-*.json"):
            for path in model.survey_folder.glob(pattern):
                path.unlink()


def _merge_surveys(first: Survey | None, second: Survey) -> Survey:
    if first is None:
        return second
    return Survey(
        second.depth, {**first.outcomes, **second.outcomes}, first.orders, {**first.identical, **second.identical}
    )


def store_surveys(run: Run, surveys: Mapping[str, Mapping[int, Survey]], splits: Splits, grid: EvaluationGrid) -> None:
    text = not splits.classes
    chance, batch = 0.0 if text else splits.chance, grid.batch_size(len(splits.test))
    leads = "nll" if text else "accuracy"
    run.store.replace_scores(
        vocab.ROBUSTNESS,
        rows.robustness_rows(surveys, chance=chance, classes=len(splits.classes), leads=leads, batch=batch),
    )
    run.store.replace_scores(vocab.ORDERS, rows.order_rows(surveys))
    run.store.replace_scores(vocab.IDENTITY, rows.identity_rows(surveys))
    full = {variant: result for variant, result in surveys.items() if variant != RETRAINED}
    run.store.replace_scores(vocab.CONTRIBUTION, rows.contribution_rows(full, batch))
    run.store.replace_scores(vocab.NODES, node_loss_rows(full, batch))
    run.store.replace_scores(vocab.POSITION_IMPORTANCE, position_importance_rows(full))
    contrasts = list(contrast_positions(full))
    if not text:  # the published result is classification accuracy
        contrasts += contrast_orders(full, chance=chance, batch=batch)
    stored = run.store.scores(CONTRAST)
    run.store.replace_scores(CONTRAST, replace_claims(stored, contrasts, CLAIMS))


def position_rows(variants: Mapping[str, Mapping[int, Answers]]) -> list[Score]:
    """Return rows of measure `position`, for each seed, for each variant, and for guessing.

    An order is drawn for every batch, so intervals are over batches.
    """
    results = []
    for variant, seeds in variants.items():
        predicted = {seed: answers for seed, answers in seeds.items() if answers}
        if not predicted:
            continue
        positions_of_layers = next(iter(predicted.values()))
        for position in (*positions_of_layers, None):
            counts = {
                seed: np.sum(list(answers.values()), axis=0) if position is None else answers[position]
                for seed, answers in predicted.items()
            }
            columns: dict[str, Any] = {"variant": variant, "position": position}
            for seed, each in counts.items():
                documents = int(each[1].sum())
                share = _share([each])
                results.append(Score(vocab.POSITION, "accuracy", *share, **columns, seed=seed, documents=documents))
            results.append(Score(vocab.POSITION, "accuracy", *_share(list(counts.values())), **columns))
            results.append(
                Score(vocab.POSITION, "accuracy", 1 / len(positions_of_layers), **columns, against=vocab.CHANCE)
            )
    return results


def _share(seeds: Sequence[Numbers]) -> Bounded:
    right, answers = (np.array([counts[row] for counts in seeds]) for row in (0, 1))
    closed = [wilson(hits.sum(), int(count.sum())).row() for hits, count in zip(right, answers, strict=True)]
    return rows.wider_interval("accuracy", closed, average_scored(right, answers, 1, "accuracy"))
