"""By how many nats a model prefers the better of two texts, or the right label of a sentence: units of phenomena."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch

from layerwise.data.suites.classification import Labelled, Task
from layerwise.data.suites.generated_msgs import LINGUISTIC, SURFACE
from layerwise.data.suites.minimal_pairs import MinimalPair, PairSet
from layerwise.data.text.passages import Passage
from layerwise.errors import DataError
from layerwise.measure.interventions.edge_phenomena import MarginEvaluation, Phenomenon
from layerwise.measure.language.pseudo_likelihood import SentenceScorer, log_likelihoods
from layerwise.measure.stats.float64 import exact_on_cpu
from layerwise.measure.stats.statistics import Numbers
from layerwise.stack import Stack
from layerwise.stack.inputs import evaluating

FEATURES = {
    **dict.fromkeys((*LINGUISTIC, "irregular_form", "morphology"), True),
    **dict.fromkeys((*SURFACE, "title_case", "absolute_token_position", "relative_token_position"), False),
}
"""The features of MSGS and of mixed signals of our own: whether each is linguistic."""

CONTROL = "control "
_BATCH = 64
_ROUNDING = 3 * float(np.finfo(np.float32).eps)


def pair_margins(stack: Stack, pairs: PairSet) -> list[tuple[Phenomenon, MarginEvaluation]]:
    """The pairs of a suite by phenomenon: the log-likelihood of the better text less that of the other, in nats."""
    if stack.tokenizer is None:
        raise DataError(f"{stack.source.name} has no tokenizer beside it, so it cannot read pairs")
    scorer = SentenceScorer.of(stack.model, stack.tokenizer)
    by_phenomenon: dict[str, list[MinimalPair]] = {}
    for pair in pairs.pairs:
        by_phenomenon.setdefault(pair.phenomenon, []).append(pair)
    return [
        (Phenomenon(name, tuple(pair.paradigm for pair in members)), partial(_preferred, scorer, members))
        for name, members in by_phenomenon.items()
    ]


def _preferred(scorer: SentenceScorer, pairs: list[MinimalPair]) -> Numbers:
    passages = [
        passage
        for pair in pairs
        for passage in (Passage(pair.good, pair.good_start), Passage(pair.bad, pair.bad_start))
    ]
    values = log_likelihoods(scorer, passages).values
    good, bad = values[0::2], values[1::2]
    # What is within rounding is no preference, as where pairs are counted.
    rounding = _ROUNDING * np.maximum(np.abs(good), np.abs(bad))
    return np.where(np.abs(good - bad) > rounding, good - bad, 0.0)


def label_margins(model: Any, tokenizer: Any, task: Task, length: int) -> tuple[Phenomenon, MarginEvaluation]:
    """The test sentences of a task: the logit of the right label less the highest of the others, in nats.

    A control task is called by its feature, which is linguistic or surface. The right label of an ambiguous task is the
    linguistic one, so there a margin above 0 is a preference for structure.
    """
    name = task.name.removeprefix(CONTROL)
    kind = FEATURES.get(name) if task.name.startswith(CONTROL) else None
    phenomenon = Phenomenon(name if kind is not None else task.name, (task.name,) * len(task.test), kind)
    return phenomenon, partial(_labelled, model, tokenizer, task.test, length)


def _labelled(model: Any, tokenizer: Any, examples: tuple[Labelled, ...], length: int) -> Numbers:
    margins = []
    with evaluating(model), torch.inference_mode():
        for start in range(0, len(examples), _BATCH):
            batch = examples[start : start + _BATCH]
            texts = [each.text for each in batch]
            inputs = tokenizer(texts, truncation=True, max_length=length, padding=True, return_tensors="pt")
            inputs = {key: tensor.to(model.device) for key, tensor in inputs.items() if key != "token_type_ids"}
            logits = exact_on_cpu(model(**inputs).logits).numpy()
            labels = np.array([each.label for each in batch])
            right = logits[np.arange(len(batch)), labels]
            logits[np.arange(len(batch)), labels] = -np.inf
            margins.append(right - logits.max(axis=1))
    return np.concatenate(margins)
