"""The evaluation of pretrained models: held-out loss, layer weights, agreement of seeds, minimal pairs."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from layerwise.data.suites.generated_pairs import generated_pairs
from layerwise.experiments.minimal_pairs import EvaluatedModel, Opened, ScoringOptions, evaluate_models
from layerwise.experiments.pretraining.config import BACKBONE
from layerwise.experiments.pretraining.rows import (
    LATENCY,
    MEMORY,
    arm_means,
    pretrained_rows,
)
from layerwise.experiments.pretraining.trainings import Pretrainings
from layerwise.experiments.provenance import in_words
from layerwise.experiments.reporter import Reporter
from layerwise.experiments.training_runs import training_rows
from layerwise.experiments.trainings import TrainedModel, finished_models
from layerwise.measure.contrasts.contrast import CONTRAST, renewed
from layerwise.measure.contrasts.mixture import CLAIMS, pattern
from layerwise.measure.recovery.stability import stability_rows
from layerwise.measure.stats.statistics import Numbers
from layerwise.measure.weights.seed_agreement import seed_agreement_scores, weights_by_seed
from layerwise.measure.weights.uniformity import uniformity_rows
from layerwise.models import ElcForMaskedLM
from layerwise.models.elc.variants import find_variant
from layerwise.results import Run
from layerwise.results.rows import Score
from layerwise.results.training_record import TrainingRecord
from layerwise.results.vocabulary import ALPHA, MASKED_LM, SEED_AGREEMENT, STABILITY, TRAINING, UNIFORMITY
from layerwise.train.pretrain.recipe import PretrainingRecipe, new_model


def evaluate_pretrained(pretrainings: Pretrainings, run: Run, reporter: Reporter, *, pairs: int, segments: int) -> None:
    """Store the rows of every finished model in the run; those that are stored already are kept.

    `pairs` is the number of minimal pairs of each paradigm, `segments` the most held-out segments.
    """
    models = finished_models(run.folder)
    rows = _held_out_rows(models, pretrainings, run, reporter, segments)
    rows += arm_means(rows)
    records = {(each.arm, each.seed): TrainingRecord.read(each.folder) for each in models}
    rows += training_rows({model: record for model, record in records.items() if record is not None})
    for measure in (MASKED_LM, ALPHA, TRAINING):
        run.store.replace_scores(measure, [row for row in rows if row.measure == measure])
    run.store.replace_scores(SEED_AGREEMENT, _seed_agreement(pretrainings, rows))
    run.store.replace_scores(UNIFORMITY, _uniformity(pretrainings, rows))
    run.store.replace_scores(STABILITY, stability_rows(rows, BACKBONE))
    patterns = _patterns(pretrainings, rows)
    run.store.replace_scores(CONTRAST, renewed(run.store.scores(CONTRAST), patterns, CLAIMS))
    evaluated = [EvaluatedModel(each.arm, each.seed, partial(_open, each.folder, pretrainings)) for each in models]
    options = ScoringOptions(how=in_words(pretrainings.device, "auto"))
    evaluate_models(evaluated, [generated_pairs(pairs)], options, run, progress=reporter.progress)


def _held_out_rows(
    models: tuple[TrainedModel, ...], pretrainings: Pretrainings, run: Run, reporter: Reporter, segments: int
) -> list[Score]:
    """The rows of each model by itself: stored ones, and those of the models that have none."""
    stored = [row for measure in (MASKED_LM, ALPHA) for row in run.store.scores(measure)]
    stored += [row for row in run.store.scores(TRAINING) if row.metric in (LATENCY, *MEMORY)]
    rows = [row for row in stored if row.seed is not None]
    known = {(row.arm, row.seed) for row in rows}
    recipe = pretrainings.recipes[0]  # all recipes read and mask alike
    for number, each in enumerate(models):
        if (each.arm, each.seed) not in known:
            reporter.progress(f"{each.label}  held-out text", number / len(models))
            rows += pretrained_rows(
                each.arm, each.seed, each.folder, pretrainings.text.test, recipe, limit=segments,
                device=pretrainings.device,
            )  # fmt: skip
    return rows


def _seed_agreement(pretrainings: Pretrainings, rows: list[Score]) -> list[Score]:
    """Whether the seeds of each arm that learns layer weights have learned the same ones."""
    scores = []
    for recipe, initial in _initial_weights(pretrainings):
        scores += seed_agreement_scores(recipe.arm, weights_by_seed(rows, recipe.arm), initial=initial)
    return scores


def _patterns(pretrainings: Pretrainings, rows: list[Score]) -> list[Score]:
    """What the embedding and the previous layer carry, in each arm that learns weights of sum one."""
    scores = []
    for recipe, initial in _initial_weights(pretrainings):
        if find_variant(recipe.variant).mixture == "softmax":
            scores += pattern(recipe.arm, weights_by_seed(rows, recipe.arm), initial)
    return scores


def _uniformity(pretrainings: Pretrainings, rows: list[Score]) -> list[Score]:
    """How far the rows of weights are from equal shares, in each arm whose weights are shares; held ones too."""
    scores = []
    for recipe, initial in _initial_weights(pretrainings, held=True):
        if find_variant(recipe.variant).mixture == "softmax":
            scores += uniformity_rows(recipe.arm, weights_by_seed(rows, recipe.arm), initial)
    return scores


def _initial_weights(pretrainings: Pretrainings, *, held: bool = False) -> Iterator[tuple[PretrainingRecipe, Numbers]]:
    """The recipes that learn layer weights, each with those that it begins with, (readers, sources).

    With `held`, those that hold them as they began are among them.
    """
    for recipe in pretrainings.recipes:
        initial = new_model(recipe, pretrainings.tokenizer).layer_weights()
        if initial is not None and (held or not recipe.frozen_layer_weights):
            yield recipe, initial.detach().numpy().astype("float64")


def _open(folder: Path, pretrainings: Pretrainings) -> Opened:
    return ElcForMaskedLM.from_pretrained(folder).to(pretrainings.device), pretrainings.tokenizer
