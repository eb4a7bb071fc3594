"""The steps of a pretraining: models of several variants and seeds, then what each has learned."""

from __future__ import annotations

from dataclasses import replace

from layerwise.data.suites.generated_pairs import generated_pairs
from layerwise.results.training_record import MODEL
from layerwise.runner.call import MeasureUnit
from layerwise.runner.experiment import Inputs
from layerwise.runner.minimal_pairs import pairs_table
from layerwise.runner.reporter import Reporter
from layerwise.runner.steps import Completed, Outline, Steps
from layerwise.runner.training_options import changed
from layerwise.runner.training_runs import discard_trainings
from layerwise.studies.train_elc.evaluation import evaluate_pretrained
from layerwise.studies.train_elc.options import BACKBONE, ElcPretraining
from layerwise.studies.train_elc.trainings import prepare_pretrainings
from layerwise.train.pretrain.recipe import PretrainingRecipe, pretraining_recipe

PAIRS = 100
"""Minimal pairs of each paradigm that models are evaluated on at the end; `layerwise evaluate` reads more."""

SEGMENTS = 4_096
"""Held-out segments that models are evaluated on at the end, at most, spread over all documents."""


def pretraining(config: ElcPretraining, reporter: Reporter, inputs: Inputs) -> Steps:
    """Pretrain every variant with every seed, then evaluate losses, layer weights, agreement of seeds and pairs.

    Raises `TrainError` and `ModelError` for unknown variants and initializations, and as `prepare_pretrainings`.
    """
    reporter.log("loading torch")
    config = replace(config, precision=config.resolved_precision(config.device, config.run))
    pretrainings = prepare_pretrainings(config, recipes(config), reporter, inputs.corpus, epochs=config.epochs)
    yield Outline(
        pretrainings.manifest(config.seed),
        pretrainings.describe,
        recipe=pretrainings.shared_recipe(),
        ahead=(pretrainings,),
        refuse=pretrainings.refuse,
        discard=discard_trainings,
        models=lambda folder: {each.label: folder / each.folder / MODEL for each in pretrainings.trainings},
        results=lambda run: (pairs_table(run, generated_pairs(PAIRS)),),
    )
    yield from pretrainings
    yield from MeasureUnit(
        lambda session: evaluate_pretrained(pretrainings, session.run, session.reporter, pairs=PAIRS, segments=SEGMENTS)
    )
    return Completed()


def recipes(config: ElcPretraining) -> tuple[PretrainingRecipe, ...]:
    """Return the recipe of every variant and initialization; raises `TrainError` and `ModelError` for unknown ones."""
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
