"""The steps of a pretraining: the recipes and texts of its variants, and what each has learned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from layerwise.data.suites.generated import generated_pairs
from layerwise.data.text.corpus import Corpus
from layerwise.data.text.segments import cut
from layerwise.results import Run
from layerwise.runner.call import MeasureUnit
from layerwise.runner.minimal_pairs import pairs_table
from layerwise.runner.reporter import Reporter
from layerwise.runner.tasks import TaskSession
from layerwise.runner.training_options import TrainingData
from layerwise.runner.training_runs import divided_documents, store_comparisons
from layerwise.studies.train_elc.evaluation import evaluate_pretrained
from layerwise.studies.train_elc.trainings import Pretrainings
from layerwise.studies.train_elc.variants import by_share, make_recipe, share_text
from layerwise.train.pretrain.recipe import PretrainingRecipe

PAIRS = 100
"""Minimal pairs of each paradigm that models are evaluated on at the end; `layerwise evaluate` reads more."""

SEGMENTS = 4_096
"""Held-out segments that models are evaluated on at the end, at most, spread over all documents."""


def make_recipes(size: str, variants: Sequence[str], settings: Mapping[str, Any]) -> tuple[PretrainingRecipe, ...]:
    """Return the recipe of every variant; raises `TrainError` for an unknown one."""
    return tuple(make_recipe(size, name, **settings) for name in dict.fromkeys(variants))


def divide_by_share(
    every: Pretrainings, data: TrainingData, reporter: Reporter, corpus: Corpus | None, *, seed: int
) -> list[Pretrainings]:
    """Divide the trainings by the share of the text that they read, the whole text first.

    Raises `DataError` for a share that is smaller than a batch.
    """
    divided = []
    for share, recipes in by_share(every.recipes):
        text = every.text
        if share < 1:
            reporter.log(f"encoding {share:g} of the training text")
            _, division = divided_documents(data, seed, corpus)
            text = share_text(text, division.parts, every.tokenizer, share, seed)
            recipes[0].phases([len(cut(text.train, length)) for length in recipes[0].lengths])
        divided.append(every.of(recipes, text))
    return divided


def refuse_others(by_text: Sequence[Pretrainings], folder: Path) -> None:
    """Raise for trainings in a folder that differ from these."""
    for each in by_text:
        each.refuse(folder)


def evaluate_variants(pretrainings: Pretrainings) -> MeasureUnit[None]:
    """Return the task that evaluates the finished models of a run and compares its variants."""

    def evaluate(session: TaskSession) -> None:
        evaluate_pretrained(pretrainings, session.run, session.reporter, pairs=PAIRS, segments=SEGMENTS)
        store_comparisons(session.run)

    return MeasureUnit(evaluate)


def list_results(run: Run) -> tuple[str, ...]:
    """Return the table of minimal pairs."""
    return (pairs_table(run, generated_pairs(PAIRS)),)
