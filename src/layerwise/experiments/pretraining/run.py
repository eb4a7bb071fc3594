"""The steps of a pretraining: models of several variants and seeds, then what each has learned."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import torch

from layerwise.data.suites.generated_pairs import generated_pairs
from layerwise.data.text.segments import cut
from layerwise.data.text.span_masking import FixedMasks, Padding, SpanMasking
from layerwise.experiments.cluster.pieces import Telling
from layerwise.experiments.engines.call import MeasureUnit
from layerwise.experiments.engines.steps import Completed, Outline, Steps, Unit, UnitSession
from layerwise.experiments.engines.trainings import steps_behind, training_work
from layerwise.experiments.engines.work import Work, WorkCost, is_short, repeated
from layerwise.experiments.experiment import Inputs
from layerwise.experiments.minimal_pairs import pairs_table
from layerwise.experiments.options.training import changed
from layerwise.experiments.pretraining.config import BACKBONE, ElcPretraining
from layerwise.experiments.pretraining.evaluation import evaluate_pretrained, masked_loss
from layerwise.experiments.pretraining.trainings import Pretrainings, prepare_pretrainings, tokens_read
from layerwise.experiments.reporter import Reporter
from layerwise.experiments.training_runs import discard_trainings
from layerwise.measure.language.minimal_pairs import preferences
from layerwise.measure.language.pseudo_likelihood import SentenceScorer
from layerwise.measure.workers import Emit, Plain
from layerwise.models import ElcForMaskedLM
from layerwise.results import Run
from layerwise.results.training_record import MODEL
from layerwise.stack.inputs import evaluating
from layerwise.train.pretrain.curriculum import SpreadBatches
from layerwise.train.pretrain.recipe import PretrainingRecipe, new_model, pretraining_recipe
from layerwise.train.pretrain.trainer import trainer_of
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


_SEGMENTS, _FEW_PAIRS, _PAIRS = 32, 8, 100
"""Segments, and pairs, that are evaluated at once while they are timed. With few pairs no batch is full: they warm up,
and count only where there is no time for more."""


def pretraining_works(pretrainings: Pretrainings, folder: Path, *, pairs: int, segments: int) -> Iterator[Work]:
    """The pretrainings that are not finished, and the evaluation of their models on so many pairs of each paradigm, and
    on so many segments at most."""
    left = {
        recipe.arm: (recipe, steps_behind([path for each, _, path in pretrainings.folders(folder) if each is recipe]))
        for recipe in pretrainings.recipes
    }
    models = sum(len(behind) for _, behind in left.values())
    if not models or _are_short(pretrainings, left):
        return
    model = new_model(pretrainings.recipes[0], pretrainings.tokenizer).to(pretrainings.device)
    for name, (recipe, behind) in left.items():
        if behind:
            work = training_work(name, partial(_trainer, pretrainings, recipe), behind)
            yield work if recipe.seconds is None else _of_given_seconds(work, recipe.seconds * len(behind))
    # In the order of the experiment: what trainings leave behind in memory is there when their models are evaluated.
    yield _held_out(pretrainings, model, models, segments)
    yield _pairs(pretrainings, model, models, pairs)


def _trainer(pretrainings: Pretrainings, recipe: PretrainingRecipe, folder: Path, quiet: Mapping[str, Any]) -> Any:
    """The Trainer of a recipe, of steps from all over it."""
    given = {**pretrainings.arguments, **quiet}
    recipe = replace(recipe, seconds=None)
    trainer = trainer_of(pretrainings.tokenizer, pretrainings.text, recipe, 0, folder, arguments=given)
    trainer.batches = SpreadBatches.over(trainer.batches)
    return trainer


def _of_given_seconds(work: Work, seconds: float) -> Work:
    """The same work, of trainings that take the seconds that they are given."""

    def measure(limit: float) -> WorkCost:
        measured = work.measure(limit)
        return replace(measured, seconds=seconds)

    return Work(work.name, measure)


def _held_out(pretrainings: Pretrainings, model: ElcForMaskedLM, models: int, most: int) -> Work:
    recipe, tokenizer = pretrainings.recipes[0], pretrainings.tokenizer
    masking = SpanMasking.of(tokenizer, recipe.mask_probability, recipe.stop)
    every = cut(pretrainings.text.test, recipe.lengths[0])
    whole, few = (FixedMasks(every, masking, tokenizer, count) for count in (most, _SEGMENTS))

    def once() -> float:
        with evaluating(model), torch.inference_mode():
            masked_loss(model, few, Padding(int(tokenizer.pad_token_id)))
        return models * len(whole) / len(few)

    return Work("held-out text", repeated(once, f"x {len(few)} of {len(whole):,} segments"))


def _pairs(pretrainings: Pretrainings, model: ElcForMaskedLM, models: int, each: int) -> Work:
    # Texts of one length run together, so those that are timed together are alike in length.
    every = sorted(generated_pairs(each).pairs, key=lambda pair: len(pair.good.split()))
    scorer = SentenceScorer.of(model, pretrainings.tokenizer)
    rounds = iter(range(2**31))

    def once(count: int) -> float:
        first = spread(next(rounds), max(1, len(every) - count))
        preferences(scorer, every[first : first + count])
        return models * len(every) / count

    def measure(seconds: float) -> WorkCost:
        begun = time.perf_counter()
        few = repeated(partial(once, min(_FEW_PAIRS, len(every))), f"x {_FEW_PAIRS} of {len(every):,} pairs")(0.0)
        left = seconds - (time.perf_counter() - begun)
        most = min(_PAIRS, len(every))
        if few.seconds * most / (models * len(every)) > left:
            return few
        return repeated(partial(once, most), f"x {most} of {len(every):,} pairs")(left)

    return Work("minimal pairs", measure)


def _are_short(pretrainings: Pretrainings, left: Mapping[str, tuple[PretrainingRecipe, list[int]]]) -> bool:
    model = new_model(pretrainings.recipes[0], pretrainings.tokenizer)
    weights = sum(parameter.numel() for parameter in model.parameters())
    tokens = sum(tokens_read(recipe) * len(behind) for recipe, behind in left.values())
    steps = sum(recipe.steps * len(behind) for recipe, behind in left.values())
    return is_short(6.0 * weights * tokens, 5 * steps)
