"""The steps of a pretraining: models of several variants and seeds, then what each has learned."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from layerwise.data.suites.generated_pairs import generated_pairs
from layerwise.experiments.cluster.pieces import Telling
from layerwise.experiments.engines.call import MeasureUnit
from layerwise.experiments.engines.steps import Completed, Outline, Steps, Unit, UnitSession
from layerwise.experiments.engines.work import Work
from layerwise.experiments.experiment import Inputs
from layerwise.experiments.minimal_pairs import pairs_table
from layerwise.experiments.options.training import changed
from layerwise.experiments.pretraining.config import BACKBONE, ElcPretraining
from layerwise.experiments.pretraining.evaluation import evaluate_pretrained
from layerwise.experiments.pretraining.trainings import Pretrainings, prepare_pretrainings
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


def pretraining(config: ElcPretraining, reporter: Reporter, inputs: Inputs) -> Steps:
    """Pretrain every variant with every seed; then held-out losses, layer weights, agreement of seeds, minimal pairs.

    Raises `TrainError` and `ModelError` for variants and initialisations that there are not, with the near matches,
    and what `prepare_pretrainings` raises.
    """
    reporter.log("loading torch")
    config = replace(config, precision=config.resolved_precision(config.device, config.run))
    pretrainings = prepare_pretrainings(config, recipes(config), reporter, inputs.corpus, epochs=config.epochs)
    trainings = PretrainingsUnit((pretrainings,), lambda folder: pretraining_works(
        pretrainings, folder, pairs=PAIRS, segments=SEGMENTS
    ))  # fmt: skip
    yield Outline(
        pretrainings.manifest(config.seed), pretrainings.describe, recipe=pretrainings.shared_recipe(),
        ahead=(trainings,), refuse=trainings.refuse, discard=discard_trainings, pieces=trainings.carry_out_piece,
        models=lambda folder: {
            f"{recipe.arm}/{seed}": path / MODEL for recipe, seed, path in pretrainings.folders(folder)
        },
        results=lambda run: (pairs_table(run, generated_pairs(PAIRS)),),
    )  # fmt: skip
    yield from trainings
    yield from MeasureUnit(
        lambda session: evaluate_pretrained(pretrainings, session.run, session.reporter, pairs=PAIRS, segments=SEGMENTS)
    )
    return Completed()


@dataclass(frozen=True)
class PretrainingsUnit(Unit[None]):
    """Pretrainings on one text after the other; `left(folder)` gives the work that is left."""

    pretrainings: Sequence[Pretrainings]
    left: Callable[[Path], Iterator[Work]] = lambda folder: iter(())
    collective: ClassVar[bool] = True

    def refuse(self, folder: Path) -> None:
        """Raise `TrainError` where another pretraining is in the folder of one of these."""
        for each in self.pretrainings:
            each.check(folder)

    def works(self, folder: Path, run: Run | None) -> Iterator[Work]:
        """The pretrainings that are not finished, and the evaluation of their models."""
        return self.left(folder)

    def carry_out(self, session: UnitSession) -> None:
        """Pretrain every variant with every seed, unless it is finished."""
        for number, each in enumerate(self.pretrainings):
            each.train(session.folder, session.reporter, session.spread, number)

    def carry_out_piece(self, piece: Plain, emit: Emit) -> Plain:
        """In a worker: one pretraining."""
        self.pretrainings[piece["text"]].train_piece(piece, Telling(emit))


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
