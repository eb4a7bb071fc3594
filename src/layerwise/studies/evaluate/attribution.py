"""Attribute the decisions of models fine-tuned on mixed signals to words (suite `attribution`).

Rows of measure `attribution`, per model and arm: `linguistic` and `surface` (attribution share of the feature's words;
against `TOKENS` their token shares), `preference` (their difference, less token shares) and `gap` (the largest
completeness error); against `SHUFFLED` the same for shuffled labels.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np

from layerwise.data.suites.classification import ClassificationTask, Labelled
from layerwise.data.suites.generated import mixed_signals
from layerwise.data.suites.minimal_pairs import TABLES
from layerwise.measure.gradients.attribution import FeatureShares, MarkedText, feature_shares
from layerwise.measure.stats.seeds import average_rows, seed_interval
from layerwise.results import Run, Score
from layerwise.results.vocabulary import ATTRIBUTION, SHUFFLED, TOKENS
from layerwise.studies.evaluate.finetuned_tasks import FineTunedModel, Progress, fine_tuned
from layerwise.train.fine_tuning import FineTuningConfig

TASK = "ambiguous main_verb_relative_position"
"""Both features of this task are carried by words: the linguistic one by `VERBS`, the other by `ARTICLES`."""

VERBS, ARTICLES = frozenset(TABLES["words"]["msgs"]["verb"]), frozenset({"the", "a"})

SENTENCES = 64
"""Sentences of each model that are attributed; the interval of an arm is over its seeds."""


def attribute(
    models: Sequence[FineTunedModel],
    settings: FineTuningConfig,
    run: Run,
    *,
    progress: Progress,
    device: str,
) -> None:
    """Fine-tune every model with the labels of the task and with shuffled ones, and store the shares of its words."""
    task = mixed_signals()[TASK]
    rates = ", ".join(f"{rate:g}" for rate in settings.learning_rates)
    note = (
        f"{SENTENCES} decisions of each model on {task.name}, fine-tuned for {settings.epochs} epochs at a learning "
        f"rate of {rates} with batches of {settings.batch_size} and {settings.training_limit or 'all'} examples."
    )
    if [each.text for each in run.store.notes(ATTRIBUTION)] != [note]:
        run.store.replace_scores(ATTRIBUTION, [])
        run.store.replace_notes(ATTRIBUTION, [note])
    for model in models:
        for against, each in ((None, task), (SHUFFLED, shuffle_labels(task))):
            rows = [row for row in run.store.scores(ATTRIBUTION) if row.seed is not None]
            if any((row.arm, row.seed, row.against) == (model.arm, model.seed, against) for row in rows):
                continue
            measured: list[FeatureShares] = []

            def inspect_model(tuned: Any, tokenizer: Any, measured: list[FeatureShares] = measured) -> None:
                measured.append(feature_shares(tuned, tokenizer, mark_words(task), settings.length))

            fine_tuned(model, each, settings, 0, progress=progress, device=device, inspect_model=inspect_model)
            columns: dict[str, Any] = {"arm": model.arm, "seed": model.seed, "task": task.name}
            rows += [replace(row, **columns) for row in model_rows(measured[-1], against)]
            run.store.replace_scores(ATTRIBUTION, add_arms(rows))


def model_rows(shares: FeatureShares, against: str | None = None) -> list[Score]:
    own = {name: np.array(getattr(shares, name)) for name in ("linguistic", "surface")}
    tokens = {name: np.array(getattr(shares, f"{name}_tokens")) for name in own}
    preference = own["linguistic"] - tokens["linguistic"] - own["surface"] + tokens["surface"]
    values = [(name, against, of) for name, of in {**own, "preference": preference}.items()]
    if against is None:
        values += [(name, TOKENS, of) for name, of in tokens.items()]
    rows = []
    for metric, null, of in values:
        low, high = seed_interval(of.tolist())  # Student's interval, here over sentences
        rows.append(Score(ATTRIBUTION, metric, float(of.mean()), low, high, against=null, documents=len(of)))
    return [*rows, Score(ATTRIBUTION, "gap", shares.gap, against=against)]


def add_arms(rows: Sequence[Score]) -> list[Score]:
    """Return the rows of models and, behind them, the means of each arm over its seeds."""
    of_arms: dict[tuple[str | None, str, str, str | None], list[Score]] = {}
    for row in rows:
        of_arms.setdefault((row.arm, row.task, row.metric, row.against), []).append(row)
    results = list(rows)
    for own in of_arms.values():
        mean = average_rows(own, "", seed=None, documents=None)
        if own[0].documents is None:
            low, high = seed_interval([row.value for row in own])
            mean = replace(mean, low=low, high=high)
        results.append(mean)
    return results


def shuffle_labels(task: ClassificationTask) -> ClassificationTask:
    """Return the task with the labels of its training and selection sentences permuted; the test set stays."""
    return replace(
        task,
        name=f"{task.name} shuffled",
        train=_permute(task.train, "train"),
        selection=_permute(task.selection, "sel"),
    )


def _permute(examples: Sequence[Labelled], seed: str) -> tuple[Labelled, ...]:
    labels = [example.label for example in examples]
    Random(seed).shuffle(labels)
    return tuple(example._replace(label=label) for example, label in zip(examples, labels, strict=True))


def mark_words(task: ClassificationTask, count: int = SENTENCES) -> list[MarkedText]:
    marked = []
    for example in task.test[:count]:
        words = list(re.finditer(r"[^\s.]+", example.text))
        verbs, articles = (
            tuple(word.span() for word in words if word.group().lower() in carriers) for carriers in (VERBS, ARTICLES)
        )
        marked.append(MarkedText(example.text, verbs, articles))
    return marked
