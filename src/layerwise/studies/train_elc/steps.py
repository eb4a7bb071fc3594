"""The steps of a pretraining: models of several variants and seeds, then what each has learned."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from layerwise.data.suites.generated_pairs import generated_pairs
from layerwise.data.text.corpus import Corpus
from layerwise.data.text.segments import cut
from layerwise.results.training_record import MODEL
from layerwise.runner.call import MeasureUnit
from layerwise.runner.experiment import Inputs
from layerwise.runner.minimal_pairs import pairs_table
from layerwise.runner.reporter import Reporter
from layerwise.runner.steps import Completed, Outline, Steps, UnitSession
from layerwise.runner.training_options import changed
from layerwise.runner.training_runs import discard_trainings, divided_documents, store_comparisons
from layerwise.studies.train_elc.evaluation import evaluate_pretrained
from layerwise.studies.train_elc.options import ElcPretraining
from layerwise.studies.train_elc.trainings import Pretrainings, prepare_pretrainings
from layerwise.studies.train_elc.variants import by_share, make_recipe, share_text
from layerwise.train.pretrain.recipe import PretrainingRecipe

PAIRS = 100
"""Minimal pairs of each paradigm that models are evaluated on at the end; `layerwise evaluate` reads more."""

SEGMENTS = 4_096
"""Held-out segments that models are evaluated on at the end, at most, spread over all documents."""


def pretraining(config: ElcPretraining, reporter: Reporter, inputs: Inputs) -> Steps:
    """Pretrain every variant with every seed, then evaluate and compare them.

    Raises `TrainError` for unknown variants, and what `prepare_pretrainings` raises.
    """
    reporter.log("loading torch")
    config = replace(config, precision=config.resolved_precision(config.device, config.run))
    every = prepare_pretrainings(config, recipes(config), reporter, inputs.corpus, epochs=config.epochs)
    by_text = tuple(_divide(config, every, reporter, inputs.corpus))

    def refuse(folder: Path) -> None:
        for each in by_text:
            each.refuse(folder)

    def evaluate(session: UnitSession) -> None:
        evaluate_pretrained(by_text[0], session.run, session.reporter, pairs=PAIRS, segments=SEGMENTS)
        store_comparisons(session.run)

    yield Outline(
        every.manifest(config.seed),
        every.describe,
        recipe=every.shared_recipe(),
        ahead=by_text,
        refuse=refuse,
        discard=discard_trainings,
        models=lambda folder: {each.label: folder / each.folder / MODEL for each in every.trainings},
        results=lambda run: (pairs_table(run, generated_pairs(PAIRS)),),
    )
    for each in by_text:
        yield from each
    yield from MeasureUnit(evaluate)
    return Completed()


def recipes(config: ElcPretraining) -> tuple[PretrainingRecipe, ...]:
    """Return the recipe of every variant; raises `TrainError` for an unknown one."""
    changes = config.changes() | changed(
        steps=config.steps,
        seconds=config.seconds,
        padding_free=config.padding_free or None,
        vocabulary=config.vocabulary,
    )
    return tuple(make_recipe(config.size, name, **changes) for name in dict.fromkeys(config.variants))


def _divide(
    config: ElcPretraining, every: Pretrainings, reporter: Reporter, corpus: Corpus | None
) -> Iterator[Pretrainings]:
    for share, own in by_share(every.recipes):
        if share == 1:
            yield every.of(own)
            continue
        reporter.log(f"encoding {share:g} of the training text")
        _, division = divided_documents(config, config.seed, corpus)
        text = share_text(every.text, division.parts, every.tokenizer, share, config.seed)
        own[0].phases([len(cut(text.train, length)) for length in own[0].lengths])  # raises for too small a share
        yield every.of(own, text)
