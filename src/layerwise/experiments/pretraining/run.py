"""The steps of a pretraining: models of several variants and seeds, then what each has learned."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from layerwise.data.suites.generated_pairs import generated_pairs
from layerwise.data.text.segments import cut
from layerwise.data.text.span_masking import FixedMasks, Padding, SpanMasking
from layerwise.experiments.cluster.workers import Telling
from layerwise.experiments.engines.call import ExpectedWork, MeasureUnit
from layerwise.experiments.engines.steps import Completed, Outline, Steps, Work, by_examples
from layerwise.experiments.experiment import Inputs
from layerwise.experiments.minimal_pairs import pairs_table
from layerwise.experiments.options.training import changed
from layerwise.experiments.pretraining.config import BACKBONE, ElcPretraining
from layerwise.experiments.pretraining.evaluation import evaluate_pretrained, masked_loss
from layerwise.experiments.pretraining.trainings import Pretrainings, prepare_pretrainings
from layerwise.experiments.reporter import Reporter
from layerwise.experiments.training_runs import discard_trainings
from layerwise.measure.language.minimal_pairs import preferences
from layerwise.measure.language.pseudo_likelihood import SentenceScorer
from layerwise.results.training_record import MODEL
from layerwise.stack.inputs import evaluating
from layerwise.train.pretrain.recipe import PretrainingRecipe, new_model, pretraining_recipe
from layerwise.train.trial_steps import spread

PAIRS = 100
"""Minimal pairs of each paradigm that models are evaluated on at the end; `layerwise evaluate` reads more."""

SEGMENTS = 4_096
"""Held-out segments that models are evaluated on at the end, at most, spread over all documents."""


def pretraining(config: ElcPretraining, reporter: Reporter, inputs: Inputs) -> Steps:
    """Pretrain every variant with every seed; then held-out losses, layer weights, agreement of seeds, minimal pairs.

    Raises `TrainError` and `ModelError` for variants and initialisations that there are not, with the near matches,
    and what `prepare_pretrainings` raises.
    """
    reporter.log("loading torch")
    config = replace(config, precision=config.resolved_precision(config.device, config.run))
    pretrainings = prepare_pretrainings(config, recipes(config), reporter, inputs.corpus, epochs=config.epochs)
    evaluations = ExpectedWork(
        lambda folder: evaluation_works(pretrainings, len(pretrainings.due(folder)), pairs=PAIRS, segments=SEGMENTS)
    )
    yield Outline(
        pretrainings.manifest(config.seed),
        pretrainings.describe,
        recipe=pretrainings.shared_recipe(),
        # In their order: what trainings leave behind in memory is there when their models are evaluated.
        ahead=(pretrainings, evaluations),
        refuse=pretrainings.refuse,
        discard=discard_trainings,
        pieces=lambda piece, emit: pretrainings.carry_out_piece(piece, Telling(emit)),
        models=lambda folder: {each.label: folder / each.folder / MODEL for each in pretrainings.trainings},
        results=lambda run: (pairs_table(run, generated_pairs(PAIRS)),),
    )
    yield from pretrainings
    yield from MeasureUnit(
        lambda session: evaluate_pretrained(pretrainings, session.run, session.reporter, pairs=PAIRS, segments=SEGMENTS)
    )
    return Completed()


def recipes(config: ElcPretraining) -> tuple[PretrainingRecipe, ...]:
    """The recipe of every variant; an initialisation is part of the name of an arm.

    Raises `TrainError` and `ModelError` for what there is not, with the near matches.
    """
    changes = config.changes() | changed(
        steps=config.steps,
        seconds=config.seconds,
        padding_free=config.padding_free or None,
        vocabulary=config.vocabulary,
    )
    made = []
    for variant in config.variants:
        initialisation = None if variant == BACKBONE else config.initialisation
        arm = variant if initialisation is None else f"{variant}-{initialisation}"
        made.append(pretraining_recipe(config.size, variant, arm=arm, initialisation=initialisation, **changes))
    return tuple(made)


_SEGMENTS, _PAIRS = 32, 100
"""Segments, and pairs, that are evaluated at once while they are timed."""


def evaluation_works(pretrainings: Pretrainings, models: int, *, pairs: int, segments: int) -> Iterator[Work]:
    """The evaluation of so many models, on so many pairs of each paradigm and so many segments at most; it is short
    where their trainings are."""
    if not models:
        return
    recipe, tokenizer = pretrainings.recipes[0], pretrainings.tokenizer
    model = new_model(recipe, tokenizer).to(pretrainings.device)
    masking = SpanMasking.of(tokenizer, recipe.mask_probability, recipe.stop)
    held_out = cut(pretrainings.text.test, recipe.lengths[0])
    # Texts of one length run together, so those that are timed together are alike in length.
    every = sorted(generated_pairs(pairs).pairs, key=lambda pair: len(pair.good.split()))
    scorer = SentenceScorer.of(model, tokenizer)

    def read(_: int, count: int) -> None:
        with evaluating(model), torch.inference_mode():
            masked_loss(model, FixedMasks(held_out, masking, tokenizer, count), Padding(int(tokenizer.pad_token_id)))

    def prefer(number: int, count: int) -> None:
        first = spread(number, max(1, len(every) - count))
        preferences(scorer, every[first : first + count])

    most = min(segments, len(held_out))
    yield Work("held-out text", by_examples(read, most, _SEGMENTS, "segments", models), slow=0.0)
    yield Work("minimal pairs", by_examples(prefer, len(every), _PAIRS, "pairs", models), slow=0.0)
