"""Attribute the decisions of fine-tuned models to words (suite `attribution`).

In training, a linguistic and a surface feature predict the label equally well. Rows of measure `attribution`, per model
and variant:

    linguistic, surface   attribution share of the words of a feature; in rows against `TOKENS`, their share of tokens
    preference            linguistic minus surface, each minus its share of the tokens
    gap                   largest completeness error of the attributions

Rows against `SHUFFLED` have the same values after fine-tuning on shuffled labels.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np

from layerwise.data.suites.classification import ClassificationTask, LabeledText
from layerwise.data.suites.generated import generate_mixed_signals
from layerwise.data.suites.minimal_pairs import TABLES
from layerwise.measure.gradients.attribution import FeatureShares, MarkedText, feature_shares
from layerwise.measure.stats.seeds import average_rows, seed_interval
from layerwise.results import Run, Score
from layerwise.results.vocabulary import ATTRIBUTION, SHUFFLED, TOKENS
from layerwise.studies.evaluate.finetuned_tasks import FineTunedModel, Progress, fine_tune_model
from layerwise.train.fine_tuning import FineTuningConfig

TASK = "ambiguous main_verb_relative_position"
"""The task: `VERBS` are the words of its linguistic feature, `ARTICLES` those of its surface feature."""

VERBS, ARTICLES = frozenset(TABLES["words"]["msgs"]["verb"]), frozenset({"the", "a"})

SENTENCES = 64
"""Number of attributed sentences per model."""


def attribute(
    models: Sequence[FineTunedModel],
    settings: FineTuningConfig,
    run: Run,
    *,
    progress: Progress,
    device: str,
) -> None:
    """Fine-tune every model on the true and on shuffled labels, and store the attribution shares."""
    task = generate_mixed_signals()[TASK]
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
            if any((row.variant, row.seed, row.against) == (model.variant, model.seed, against) for row in rows):
                continue
            measured: list[FeatureShares] = []

            def inspect_model(tuned: Any, tokenizer: Any, measured: list[FeatureShares] = measured) -> None:
                measured.append(feature_shares(tuned, tokenizer, mark_words(task), settings.length))

            fine_tune_model(model, each, settings, 0, progress=progress, device=device, inspect_model=inspect_model)
            columns: dict[str, Any] = {"variant": model.variant, "seed": model.seed, "task": task.name}
            rows += [replace(row, **columns) for row in model_rows(measured[-1], against)]
            run.store.replace_scores(ATTRIBUTION, add_variant_means(rows))


def model_rows(shares: FeatureShares, against: str | None = None) -> list[Score]:
    words = {name: np.array(getattr(shares, name)) for name in ("linguistic", "surface")}
    tokens = {name: np.array(getattr(shares, f"{name}_tokens")) for name in words}
    preference = words["linguistic"] - tokens["linguistic"] - words["surface"] + tokens["surface"]
    values = [(name, against, each) for name, each in {**words, "preference": preference}.items()]
    if against is None:
        values += [(name, TOKENS, each) for name, each in tokens.items()]
    rows = []
    for metric, null, each in values:
        low, high = seed_interval(each.tolist())  # Student's interval over sentences
        rows.append(Score(ATTRIBUTION, metric, float(each.mean()), low, high, against=null, documents=len(each)))
    return [*rows, Score(ATTRIBUTION, "gap", shares.gap, against=against)]


def add_variant_means(rows: Sequence[Score]) -> list[Score]:
    """Return the rows of models, followed by the mean of each variant over its seeds."""
    variants: dict[tuple[str | None, str, str, str | None], list[Score]] = {}
    for row in rows:
        variants.setdefault((row.variant, row.task, row.metric, row.against), []).append(row)
    results = list(rows)
    for same in variants.values():
        mean = average_rows(same, "", seed=None, documents=None)
        if same[0].documents is None:
            low, high = seed_interval([row.value for row in same])
            mean = replace(mean, low=low, high=high)
        results.append(mean)
    return results


def shuffle_labels(task: ClassificationTask) -> ClassificationTask:
    """Permute the labels of training and selection sentences; the test set is unchanged."""
    return replace(
        task,
        name=f"{task.name} shuffled",
        train=_permute(task.train, "train"),
        selection=_permute(task.selection, "sel"),
    )


def _permute(examples: Sequence[LabeledText], seed: str) -> tuple[LabeledText, ...]:
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
