"""A pretraining that is ready to run: models of several variants and seeds, then what each has learned."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from layerwise.data.suites.generated_pairs import generated_pairs
from layerwise.data.text.corpus import Corpus
from layerwise.experiments.cluster.pieces import Telling
from layerwise.experiments.engines.work import Work
from layerwise.experiments.evaluation.pairs_table import pairs_table
from layerwise.experiments.experiment import Prepared
from layerwise.experiments.options.training import changed
from layerwise.experiments.pretraining.config import BACKBONE, ElcPretraining
from layerwise.experiments.pretraining.evaluation import evaluate_pretrained
from layerwise.experiments.pretraining.trainings import prepare_pretrainings
from layerwise.experiments.pretraining.works import pretraining_works
from layerwise.experiments.reporter import Reporter
from layerwise.experiments.trainings import discard_trainings
from layerwise.measure.workers import Emit, Plain
from layerwise.results import Run
from layerwise.results.training_record import MODEL
from layerwise.train.pretrain.recipe import PretrainingRecipe, pretraining_recipe

PAIRS = 100
"""Minimal pairs of each paradigm that models are evaluated on at the end; `layerwise evaluate` reads more."""

SEGMENTS = 4_096
"""Held-out segments that models are evaluated on at the end, at most, spread over all documents."""


class PreparedPretraining(Prepared):
    """Recipes, a tokenizer and an encoded text.

    Raises `TrainError` and `ModelError` for variants and initialisations that there are not, with the near matches,
    and what `prepare_pretrainings` raises.
    """

    def __init__(self, config: ElcPretraining, reporter: Reporter, corpus: Corpus | None) -> None:
        config = replace(config, precision=config.resolved_precision(config.device, config.run))
        self.pretrainings = prepare_pretrainings(config, recipes(config), reporter, corpus, epochs=config.epochs)
        self.manifest = self.pretrainings.manifest(config.seed)
        self.recipe = self.pretrainings.shared_recipe()

    def describe(self) -> Iterator[str]:
        """The text, the vocabulary, the arms, and how many tokens each training reads."""
        return self.pretrainings.describe()

    def check(self, folder: Path) -> None:
        """Raise `TrainError` where another pretraining is in the folder of one of these."""
        self.pretrainings.check(folder)

    def discard(self, folder: Path) -> None:
        """Remove every training."""
        discard_trainings(folder)

    def works(self, folder: Path, run: Run | None) -> Iterator[Work]:
        """The pretrainings that are not finished, and the evaluation of their models."""
        return pretraining_works(self.pretrainings, folder, pairs=PAIRS, segments=SEGMENTS)

    def train(self, folder: Path, reporter: Reporter) -> None:
        """Pretrain every variant with every seed."""
        self.pretrainings.train(folder, reporter, self.spread)

    def models_of(self, folder: Path) -> Mapping[str, Path]:
        """The model of every variant and seed."""
        return {f"{recipe.arm}/{seed}": path / MODEL for recipe, seed, path in self.pretrainings.folders(folder)}

    def carry_out(self, piece: Plain, emit: Emit) -> Plain:
        """In a worker: one pretraining."""
        self.pretrainings.train_piece(piece, Telling(emit))

    def measure(self, run: Run, reporter: Reporter) -> None:
        """Held-out losses, layer weights, agreement of seeds, and minimal pairs."""
        evaluate_pretrained(self.pretrainings, run, reporter, pairs=PAIRS, segments=SEGMENTS)

    def results(self, run: Run) -> Sequence[str]:
        """The accuracy of every arm on minimal pairs."""
        return (pairs_table(run, generated_pairs(PAIRS)),)


def recipes(config: ElcPretraining) -> tuple[PretrainingRecipe, ...]:
    """The recipe of every variant; an initialisation is part of the name of an arm.

    Raises `TrainError` and `ModelError` for what there is not, with the near matches.
    """
    changes = config.changes() | changed(
        steps=config.steps, seconds=config.seconds, padding_free=config.padding_free or None,
        vocabulary=config.vocabulary,
    )  # fmt: skip
    made = []
    for variant in config.variants:
        initialisation = None if variant == BACKBONE else config.initialisation
        arm = variant if initialisation is None else f"{variant}-{initialisation}"
        made.append(pretraining_recipe(config.size, variant, arm=arm, initialisation=initialisation, **changes))
    return tuple(made)
