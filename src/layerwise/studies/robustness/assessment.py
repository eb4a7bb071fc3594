"""Survey trained models, one at a time, and make every row of the robustness report from the surveys.

A survey is stored next to its model (`survey-<key>.npz`, keyed by data, questions and computation), so an assessment
resumes with the next model.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from layerwise.data.splits import Splits
from layerwise.measure.activations.attention_by_position import attention_by_position
from layerwise.measure.activations.by_position import STREAM, branch_norms, probed
from layerwise.measure.activations.embedding import NO_UMAP, EmbeddingOptions, embedding, umap_installed
from layerwise.measure.contrasts.contrast import CONTRAST, renewed
from layerwise.measure.contrasts.shuffled import CLAIMS, NULLS, SHUFFLED, Answers, positions, shuffled
from layerwise.measure.contrasts.trainings import mean_over_trainings
from layerwise.measure.interventions import robustness as rows
from layerwise.measure.interventions.survey import Condition, EvaluationGrid, Survey, survey
from layerwise.measure.interventions.worth_by_position import PositionTables, worth_by_position
from layerwise.measure.stats.estimate import Bounded
from layerwise.measure.stats.statistics import Numbers, wilson
from layerwise.plan.samplers import SeededSampler, Shuffle
from layerwise.results import Run, Score
from layerwise.results import vocabulary as vocab
from layerwise.results.training_record import RETRAINED, refined_at
from layerwise.runner.reporter import Reporter
from layerwise.runner.training_runs import TrainedModel
from layerwise.stack.inputs import evaluating
from layerwise.studies.robustness.node_loss import node_loss
from layerwise.studies.robustness.switching_off import CLAIMS as OF_SWITCHING
from layerwise.studies.robustness.switching_off import position_worth, switching_off
from layerwise.train.load_trained import Trained, open_trained

INSIDE = (vocab.OUTPUT_LAYOUT, vocab.ATTENTION, vocab.BRANCHES)
"""What is measured inside one model of each arm."""


def assess(
    models: Sequence[TrainedModel],
    splits: Splits,
    grid: EvaluationGrid,
    run: Run,
    reporter: Reporter,
    *,
    open_model: Callable[[Path], Trained] = open_trained,
    how: str = "",
    inside: EmbeddingOptions | None = None,
) -> bool:
    """Survey every model on the test split, store the rows, and return whether a survey was computed.

    See `layerwise.measure.interventions.survey`. `how` describes the computation, and is part of the key; `inside`
    selects the outputs to embed. Models trained at a reduced depth (arms `retrained-6`) are evaluated at that depth
    alone, and are one arm.
    """
    surveys: dict[str, dict[int, Survey]] = {}
    first_of_arm: dict[str, TrainedModel] = {}
    positions: dict[str, dict[int, Answers]] = {}
    name = survey_name(splits, grid, how)
    any_new = False
    for model in models:
        result, is_new = _surveyed(model, name, splits, grid, reporter, open_model)
        any_new = any_new or is_new
        arm = model.arm if refined_at(model.arm) is None else RETRAINED
        of_arm = surveys.setdefault(arm, {})
        of_arm[model.seed] = _united(of_arm.get(model.seed), result)
        if arm != RETRAINED and first_of_arm.setdefault(arm, model) is model and is_new:
            _keep_inside(run, {each.arm for each in run.store.scores(vocab.BRANCHES)} - {arm})
        positions.setdefault(model.arm, {})[model.seed] = result.positions
    store_surveys(run, surveys, splits, grid)
    run.store.replace_scores(vocab.POSITION, position_rows(positions))
    inside = inside or EmbeddingOptions()
    if grid.layers:
        seen = set(first_of_arm) & {row.arm for row in run.store.scores(vocab.BRANCHES)}
        if _is_outdated(run, inside, len(splits.test)):
            seen = set()
            run.store.replace_notes(vocab.OUTPUT_LAYOUT, ())
        _keep_inside(run, seen)
        opened = ((arm, open_model(model.folder)) for arm, model in first_of_arm.items() if arm not in seen)
        _look_inside(run, opened, splits, inside, reporter, grid.seed)
    return any_new


def _keep_inside(run: Run, arms: Collection[str | None]) -> None:
    for measure in INSIDE:
        stored = run.store.scores(measure)
        kept = [row for row in stored if row.arm in arms]
        if len(kept) < len(stored):
            run.store.replace_scores(measure, kept)


def _is_outdated(run: Run, inside: EmbeddingOptions, examples: int) -> bool:
    if NO_UMAP in run.store.notes(vocab.OUTPUT_LAYOUT) and umap_installed():
        return True
    laid_out = run.store.scores(vocab.OUTPUT_LAYOUT)
    images = {row.value for row in laid_out if row.metric == "images"}
    layers = {row.layer for row in laid_out if row.metric == "x" and row.layer is not None}
    return bool(laid_out) and (images != {min(inside.images, examples)} or layers != set(inside.of(max(layers) + 1)))


def discard_surveys(models: Iterable[TrainedModel]) -> None:
    for model in models:
        for path in model.survey_folder.glob("survey-*.npz"):
            path.unlink()


def survey_name(splits: Splits, grid: EvaluationGrid, how: str) -> str:
    content = json.dumps([splits.digest, asdict(grid), how], sort_keys=True)
    return f"survey-{hashlib.sha256(content.encode()).hexdigest()[:8]}.npz"


def _surveyed(
    model: TrainedModel,
    name: str,
    splits: Splits,
    grid: EvaluationGrid,
    reporter: Reporter,
    open_model: Callable[[Path], Trained],
) -> tuple[Survey, bool]:
    path = model.survey_folder / name
    if path.is_file():
        return Survey.read(path), False
    trained = open_model(model.folder)
    result = replace(
        _survey(trained, model, splits, grid, reporter),
        positions=_positions(trained, splits, grid),
        probed=_probed(trained, model, splits, grid),
        tables=_tables(trained, model, splits, grid),
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    result.save(path)
    return result, True


def _survey(trained: Trained, model: TrainedModel, splits: Splits, grid: EvaluationGrid, reporter: Reporter) -> Survey:
    only = None
    count = refined_at(model.arm)
    if count is not None:
        only = [Condition(count, "even", True)] + ([Condition(count, "even", False)] if count > 1 else [])
    return survey(
        trained.stack,
        splits.test,
        splits.collate,
        grid,
        only=only,
        progress=lambda done, total: reporter.progress(f"surveying {model.label}", done / total),
    )


def _united(first: Survey | None, second: Survey) -> Survey:
    if first is None:
        return second
    return Survey(
        second.depth, {**first.outcomes, **second.outcomes}, first.orders, {**first.identical, **second.identical}
    )


def _positions(model: Trained, splits: Splits, grid: EvaluationGrid) -> dict[int, Numbers]:
    if model.prediction is None:
        return {}
    stack, prediction = model.stack, model.prediction
    draws = SeededSampler(Shuffle(), stack.depth, grid.seed, stream=STREAM)
    size = grid.batch_size(len(splits.test))
    results: dict[int, list[tuple[int, int]]] = {position: [] for position in range(stack.depth)}
    with evaluating(stack.model), torch.inference_mode():
        for number, batch in enumerate(DataLoader(splits.test, batch_size=size, collate_fn=splits.collate)):
            inputs = {name: tensor.to(stack.device) for name, tensor in batch.items() if name != "labels"}
            with stack.under(draws.at(number), single_pass=True):
                stack.model(**inputs)
            for position, hit in prediction.hits().items():
                results[position].append((int(hit.sum()), len(hit)))
    return {position: np.array(answers, dtype=np.float64).T for position, answers in results.items()}


def _probed(trained: Trained, model: TrainedModel, splits: Splits, grid: EvaluationGrid) -> dict[int, Numbers]:
    if model.arm not in NULLS or not grid.layers:
        return {}
    # What reports must not be what the probe was fitted on.
    fitted_on = splits.train if splits.selects_on_reported else splits.validation
    return probed(trained.stack, fitted_on, splits.test, splits.collate, grid.batch_size, grid.seed)


def _tables(trained: Trained, model: TrainedModel, splits: Splits, grid: EvaluationGrid) -> PositionTables | None:
    is_decisive = model.arm in (SHUFFLED, *NULLS)
    if not grid.layers or refined_at(model.arm) is not None or not (is_decisive or model.seed == 0):
        return None
    return worth_by_position(trained.stack, splits.test, splits.collate, seed=grid.seed)


def _look_inside(
    run: Run,
    models: Iterable[tuple[str, Trained]],
    splits: Splits,
    inside: EmbeddingOptions,
    reporter: Reporter,
    seed: int,
) -> None:
    for arm, model in models:
        reporter.log(f"inside {arm}: branch norms and attention by position, and UMAP of outputs")
        seen = (model.stack, arm, splits.test, splits.collate)
        # Branches are written last: an arm that has them is complete, and is not looked into again after a stop.
        for measure, (scores, notes) in (
            (vocab.OUTPUT_LAYOUT, embedding(*seen, inside, seed=seed)),
            (vocab.ATTENTION, attention_by_position(*seen, seed=seed)),
            (vocab.BRANCHES, branch_norms(*seen, seed=seed)),
        ):
            stored = [row for row in run.store.scores(measure) if row.arm != arm]
            texts = [note.text for note in (*run.store.notes(measure), *notes)]
            run.store.replace_notes(measure, texts)
            run.store.replace_scores(measure, [*stored, *scores])


def store_surveys(run: Run, surveys: Mapping[str, Mapping[int, Survey]], splits: Splits, grid: EvaluationGrid) -> None:
    text = not splits.classes
    chance, batch = 0.0 if text else splits.chance, grid.batch_size(len(splits.test))
    leads = "nll" if text else "accuracy"
    run.store.replace_scores(
        vocab.ROBUSTNESS,
        rows.robustness(surveys, chance=chance, classes=len(splits.classes), leads=leads, batch=batch),
    )
    run.store.replace_scores(vocab.ORDERS, rows.orders(surveys))
    run.store.replace_scores(vocab.IDENTITY, rows.identity(surveys))
    whole = {arm: result for arm, result in surveys.items() if arm != RETRAINED}
    run.store.replace_scores(vocab.CONTRIBUTION, rows.contribution(whole, batch))
    run.store.replace_scores(vocab.NODES, node_loss(whole, batch))
    run.store.replace_scores(vocab.WORTH, position_worth(whole))
    decisive = [*positions(whole), *switching_off(whole)]
    if not text:  # what is published is accuracy of classification
        decisive += shuffled(whole, chance=chance, batch=batch)
    stored = run.store.scores(CONTRAST)
    run.store.replace_scores(CONTRAST, renewed(stored, decisive, (*CLAIMS, *OF_SWITCHING)))


def position_rows(arms: Mapping[str, Mapping[int, Answers]]) -> list[Score]:
    """Return rows of measure `position` by seed and arm, with the accuracy of guessing.

    Answers are right or wrong under an order drawn for every batch, so that batches are the units of intervals.
    """
    results = []
    for arm, seeds in arms.items():
        predicted = {seed: answers for seed, answers in seeds.items() if answers}
        if not predicted:
            continue
        positions_of_layers = next(iter(predicted.values()))
        for position in (*positions_of_layers, None):
            counts = {
                seed: np.sum(list(answers.values()), axis=0) if position is None else answers[position]
                for seed, answers in predicted.items()
            }
            of: dict[str, Any] = {"arm": arm, "position": position}
            for seed, each in counts.items():
                own = _share([each])
                results.append(Score(vocab.POSITION, "accuracy", *own, **of, seed=seed, documents=int(each[1].sum())))
            results.append(Score(vocab.POSITION, "accuracy", *_share(list(counts.values())), **of))
            results.append(Score(vocab.POSITION, "accuracy", 1 / len(positions_of_layers), **of, against=vocab.CHANCE))
    return results


def _share(seeds: Sequence[Numbers]) -> Bounded:
    right, answers = (np.array([counts[row] for counts in seeds]) for row in (0, 1))
    closed = [wilson(hits.sum(), int(count.sum())).row() for hits, count in zip(right, answers, strict=True)]
    return rows.at_least_as_wide("accuracy", closed, mean_over_trainings(right, answers, 1, "accuracy"))
