"""Evaluate pretrained models: held-out loss, layer weights, agreement of seeds, minimal pairs.

Rows by measure:

masked_lm    `nll` in nats per masked token of held-out documents, always with the same masks. Intervals of a model are
             over documents, those of a variant over its seeds.
alpha        weight with which `layer` reads the state `other`
training     `latency_seconds` (median time of a text of 128 tokens) and the memory at inference (`MEMORY`)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from statistics import median

import numpy as np
import torch
from torch.nn import functional
from torch.utils.data import DataLoader

from layerwise.data.batches import IGNORED
from layerwise.data.splits import Example
from layerwise.data.suites.generated import generate_pairs
from layerwise.data.text.encoding import Encoded
from layerwise.data.text.segments import cut_segments
from layerwise.data.text.span_masking import FixedMasks, SpanMasking, make_padding_collator
from layerwise.data.text.tokenizer import load_tokenizer
from layerwise.measure.contrasts.contrast import CONTRAST, replace_claims
from layerwise.measure.contrasts.trainings import PATTERN, contrast_pattern
from layerwise.measure.cost.memory import inference_memory
from layerwise.measure.recovery.stability import stability_rows
from layerwise.measure.stats.float64 import to_float64_cpu
from layerwise.measure.stats.statistics import paired_bootstrap
from layerwise.measure.weights.layer_weights import (
    alpha_rows,
    seed_agreement_scores,
    uniformity_rows,
    weights_by_seed,
)
from layerwise.models import ElcForMaskedLM
from layerwise.models.elc.configuration import find_variant
from layerwise.plan import LayerWeights
from layerwise.results import Run, Score
from layerwise.results.training_record import TrainingRecord
from layerwise.results.vocabulary import (
    ALPHA,
    BACKBONE,
    MASKED_LM,
    MIN_UNITS,
    SEED_AGREEMENT,
    STABILITY,
    TRAINING,
    UNIFORMITY,
)
from layerwise.runner.minimal_pairs import EvaluatedModel, Opened, ScoringOptions, evaluate_models
from layerwise.runner.opening import describe_numerics
from layerwise.runner.reporter import Reporter
from layerwise.runner.tasks import Study
from layerwise.runner.training_runs import (
    TrainedModel,
    average_over_seeds,
    finished_models,
    make_training_rows,
    store_comparisons,
)
from layerwise.stack.inputs import evaluating
from layerwise.stack.placement import device_of
from layerwise.studies.train_elc.trainings import Pretrainings
from layerwise.train.pretrain.recipe import PretrainingRecipe, new_model

PAIRS = 100
"""Number of minimal pairs per paradigm. `layerwise evaluate` uses more."""

SEGMENTS = 4_096
"""Maximum number of held-out segments, spread over all documents."""


def evaluate_pretrained(session: Study, pretrainings: Pretrainings) -> None:
    run, reporter = session.run, session.reporter
    models = finished_models(run.folder)
    rows = _held_out_rows(models, pretrainings, run, reporter)
    rows += [replace(mean, tokens=None) for mean in average_over_seeds(row for row in rows if row.measure == MASKED_LM)]
    records = {(each.variant, each.seed): TrainingRecord.read(each.folder) for each in models}
    rows += make_training_rows({model: record for model, record in records.items() if record is not None})
    run.store.replace_scores((MASKED_LM, ALPHA, TRAINING), rows)
    derived = _weight_rows(pretrainings, rows) | {STABILITY: stability_rows(rows, BACKBONE)}
    derived[CONTRAST] = replace_claims(run.store.scores(CONTRAST), derived[CONTRAST], (PATTERN,))
    run.store.replace_scores(derived, chain.from_iterable(derived.values()))
    evaluated = [EvaluatedModel(each.variant, each.seed, partial(_open, each.folder, pretrainings)) for each in models]
    options = ScoringOptions(how=describe_numerics(pretrainings.device, "auto"))
    evaluate_models(evaluated, [generate_pairs(PAIRS)], options, run, progress=reporter.progress)
    store_comparisons(run)


def _held_out_rows(
    models: tuple[TrainedModel, ...], pretrainings: Pretrainings, run: Run, reporter: Reporter
) -> list[Score]:
    stored = [row for measure in (MASKED_LM, ALPHA) for row in run.store.scores(measure)]
    stored += [row for row in run.store.scores(TRAINING) if row.metric in (LATENCY, *MEMORY)]
    rows = [row for row in stored if row.seed is not None]
    evaluated = {(row.variant, row.seed) for row in rows}
    recipe = pretrainings.recipes[0]  # segments and masks are the same for all recipes
    for number, each in enumerate(models):
        if (each.variant, each.seed) not in evaluated:
            reporter.progress(f"{each.label}  held-out text", number / len(models))
            rows += pretrained_rows(
                each.variant,
                each.seed,
                each.folder,
                pretrainings.text.test,
                recipe,
                limit=SEGMENTS,
                device=pretrainings.device,
            )
    return rows


def _weight_rows(pretrainings: Pretrainings, rows: list[Score]) -> dict[str, list[Score]]:
    """Return rows by measure: agreement of layer weights over seeds, their pattern, and their distance from uniform."""
    scores: dict[str, list[Score]] = {SEED_AGREEMENT: [], CONTRAST: [], UNIFORMITY: []}
    for recipe in pretrainings.recipes:
        weights = new_model(recipe, pretrainings.tokenizer).layer_weights()
        if weights is None:
            continue
        initial = weights.detach().cpu().numpy().astype("float64")
        learned, are_shares = (
            weights_by_seed(rows, recipe.variant),
            find_variant(recipe.architecture).mixture == "softmax",
        )
        if not recipe.frozen_layer_weights:
            scores[SEED_AGREEMENT] += seed_agreement_scores(recipe.variant, learned, initial=initial)
            scores[CONTRAST] += contrast_pattern(recipe.variant, learned, initial) if are_shares else []
        scores[UNIFORMITY] += uniformity_rows(recipe.variant, learned, initial) if are_shares else []
    return scores


def _open(folder: Path, pretrainings: Pretrainings) -> Opened:
    return ElcForMaskedLM.from_pretrained(folder).to(pretrainings.device), pretrainings.tokenizer


LATENCY = "latency_seconds"
MEMORY = ("weight_bytes", "state_bytes", "activation_bytes", "allocated_bytes")
"""Metrics of the memory at inference (`layerwise.measure.cost.memory`)."""

_BATCH = 32
_LENGTH = 128
_PASSES = 15
_TEXTS = 8


def pretrained_rows(
    variant: str,
    seed: int,
    folder: Path,
    test: Encoded,
    recipe: PretrainingRecipe,
    *,
    limit: int | None = None,
    device: str = "cpu",
) -> list[Score]:
    """Return the rows of the model in `folder`, with its loss on at most `limit` short segments of `test`."""
    model = ElcForMaskedLM.from_pretrained(folder).to(device)
    tokenizer = load_tokenizer(folder)
    masking = SpanMasking.of(tokenizer, recipe.mask_probability, recipe.stop)
    examples = FixedMasks(cut_segments(test, recipe.lengths[0]), masking, tokenizer, limit)
    with evaluating(model), torch.inference_mode():
        loss = masked_loss(model, examples, make_padding_collator(int(tokenizer.pad_token_id)))
        seconds = _latency(model)
        memory = _memory(model)
        alpha = model.layer_weights()
    rows = [replace(row, variant=variant, seed=seed) for row in (loss, Score(TRAINING, LATENCY, seconds), *memory)]
    if alpha is None:
        return rows
    edges = LayerWeights.of(alpha.float().cpu().tolist(), model.config.num_hidden_layers)
    return [rows[0], *alpha_rows(variant, seed, edges), *rows[1:]]


def masked_loss(model: ElcForMaskedLM, examples: FixedMasks, collate: Callable[[Sequence[Example]], Example]) -> Score:
    """Return the loss in nats per masked token, with a bootstrap interval over documents."""
    device = device_of(model)
    documents = len(examples.segments.text)
    nats, masked = np.zeros(documents), np.zeros(documents)
    loader = DataLoader(examples, batch_size=_BATCH, collate_fn=collate)
    for number, batch in enumerate(loader):
        labels = batch.pop("labels").to(device)
        states = model.encoder(**{name: tensor.to(device) for name, tensor in batch.items()}).last_hidden_state
        row, column = (labels != IGNORED).nonzero(as_tuple=True)
        logits = model.head(states[row, column])  # only of masked tokens
        losses = functional.cross_entropy(logits.float(), labels[row, column], reduction="none")
        owners = examples.owners[number * _BATCH :][row.cpu().numpy()]
        np.add.at(nats, owners, to_float64_cpu(losses).numpy())
        np.add.at(masked, owners, 1)
    seen = masked > 0
    value, low, high = float(nats.sum() / masked.sum()), None, None
    if seen.sum() >= MIN_UNITS:
        interval = paired_bootstrap([nats[seen]], masked[seen], seed=0)
        low, high = float(interval.low[0]), float(interval.high[0])
    return Score(MASKED_LM, "nll", value, low, high, documents=int(seen.sum()), tokens=int(masked.sum()))


def _memory(model: ElcForMaskedLM) -> list[Score]:
    device = device_of(model)
    ids = torch.arange(_LENGTH, device=device).repeat(_TEXTS, 1) % model.config.vocab_size
    memory = inference_memory(model, list(model.encoder.layers), lambda: model.encoder(input_ids=ids), device)
    counted = (memory.weights, memory.states, memory.activations, memory.allocated)
    return [
        Score(TRAINING, metric, float(count))
        for metric, count in zip(MEMORY, counted, strict=True)
        if count is not None
    ]


def _latency(model: ElcForMaskedLM) -> float:
    device = device_of(model)
    ids = torch.arange(_LENGTH, device=device)[None] % model.config.vocab_size
    seconds = []
    for _ in range(_PASSES):
        start = time.perf_counter()
        model(input_ids=ids).logits.sum().item()
        seconds.append(time.perf_counter() - start)
    return median(seconds)
