"""Accuracy on minimal pairs for each paradigm, each phenomenon and overall."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from layerwise.data.suites.minimal_pairs import MinimalPair, PairSet
from layerwise.errors import MeasureError
from layerwise.measure.language.pseudo_likelihood import Passage, SentenceScorer, TooLong, log_likelihoods
from layerwise.measure.stats.seeds import average_rows
from layerwise.measure.stats.statistics import Numbers, wilson
from layerwise.results.rows import Score
from layerwise.results.vocabulary import ALL, PARADIGM, PHENOMENON

CHANCE = 0.5

_WORD = re.compile(r"\w+(?:['’]\w+)*")
TIES, SKIPPED = "ties", "skipped"

Preferences = NDArray[np.float64]
"""Score of each pair: 1 if the acceptable text is more likely, 0.5 for a tie, otherwise 0."""


def margins(
    scorer: SentenceScorer,
    pairs: Sequence[MinimalPair],
    *,
    temperature: float = 1.0,
    too_long: TooLong = "refuse",
    progress: Callable[[float], None] | None = None,
) -> Numbers:
    """Return the log-likelihood in nats of each acceptable text minus that of the unacceptable one, shape (pairs,).

    Differences within rounding error are 0. If `too_long` is "skip", pairs with a text that exceeds the model's
    positions are NaN. Raises the errors of `log_likelihoods`.
    """
    passages = [
        passage
        for pair in pairs
        for passage in (Passage(pair.good, pair.good_start), Passage(pair.bad, pair.bad_start))
    ]
    nats = log_likelihoods(scorer, passages, temperature=temperature, too_long=too_long, progress=progress)
    good, bad = nats[0::2], nats[1::2]
    # Each term is a logit minus a log-sum-exp in float32: three roundings of half an epsilon, in both texts.
    rounding = 3 * np.finfo(np.float32).eps * np.maximum(np.abs(good), np.abs(bad))
    return np.where(np.abs(good - bad) <= rounding, 0.0, good - bad)


def preferences(scorer: SentenceScorer, pairs: Sequence[MinimalPair], **options: Any) -> Preferences:
    """Score the margin of each pair with `score_margins`, shape (pairs,). `options` are those of `margins`."""
    return score_margins(margins(scorer, pairs, **options))


def score_margins(margins: Numbers) -> Preferences:
    """Return 1 for a positive margin, 0.5 for zero, 0 for a negative one, and NaN for NaN.

    >>> score_margins(np.array([0.3, 0.0, -2.0])).tolist()
    [1.0, 0.5, 0.0]
    """
    return 0.5 + 0.5 * np.sign(margins)


def paradigm_rows(suite: str, pairs: Sequence[MinimalPair], judgments: Preferences, **model: Any) -> list[Score]:
    """Return the accuracy with Wilson's interval, the fraction of ties and the number of skipped pairs of a paradigm.

    `model` has further columns of the rows. Raises `MeasureError` if every pair was skipped.
    """
    scored = judgments[~np.isnan(judgments)]
    if not scored.size:
        raise MeasureError(
            f"Pairs must fit into the model's positions, but no pair of {pairs[0].paradigm!r} does. Remove the suite "
            "or use a model with more positions."
        )
    columns: dict[str, Any] = {"task": pairs[0].paradigm, "kind": PARADIGM, **model}
    accuracy = Score(suite, "accuracy", float(scored.mean()), documents=scored.size, **columns)
    rows = [
        _mean_accuracy([accuracy]),
        Score(suite, TIES, float((scored == 0.5).mean()), documents=scored.size, **columns),
    ]
    if skipped := len(judgments) - scored.size:
        rows.append(Score(suite, SKIPPED, float(skipped), **columns))
    return rows


def mean_accuracies(pairs: Sequence[MinimalPair], paradigms: Sequence[Score]) -> list[Score]:
    """Average the accuracies of paradigms, overall and for each phenomenon, with equal weights as in BLiMP."""
    accuracies = [row for row in paradigms if row.metric == "accuracy"]
    phenomena = {pair.paradigm: pair.phenomenon for pair in pairs}
    means = [_mean_accuracy(accuracies, task=ALL, kind=None)]
    for name in dict.fromkeys(phenomena[row.task] for row in accuracies):
        rows = [row for row in accuracies if phenomena[row.task] == name]
        means.append(_mean_accuracy(rows, task=name, kind=PHENOMENON))
    return means


def _mean_accuracy(rows: Sequence[Score], **columns: Any) -> Score:
    low, high = accuracy_interval(rows)
    value, documents = float(np.mean([row.value for row in rows])), sum(row.documents or 0 for row in rows)
    return replace(rows[0], value=value, low=low, high=high, documents=documents, **columns)


def accuracy_interval(accuracies: Sequence[Score]) -> tuple[float, float]:
    """Return the 95 % interval of the mean accuracy of n paradigms, from their Wilson intervals (Zou and Donner 2008).

    low = mean - sqrt(sum_k (accuracy_k - low_k)^2) / n        high = mean + sqrt(sum_k (high_k - accuracy_k)^2) / n
    """
    counted = [(row.value, row.documents or 0) for row in accuracies]
    shares, lows, highs = np.array([wilson(value * pairs, pairs).row() for value, pairs in counted]).T
    mean, count = float(shares.mean()), len(accuracies)
    below, above = np.square(shares - lows).sum(), np.square(highs - shares).sum()
    return mean - float(np.sqrt(below)) / count, mean + float(np.sqrt(above)) / count


def variant_rows(suite: str, rows: Sequence[Score]) -> list[Score]:
    """Average the rows of each variant over its seeds, with intervals over seeds and pairs."""
    variants: dict[str, dict[int, dict[tuple[str, str | None, str], Score]]] = {}
    for row in rows:
        if row.variant is not None and row.seed is not None and row.measure == suite:
            variants.setdefault(row.variant, {}).setdefault(row.seed, {})[row.task, row.kind, row.metric] = row
    return [
        average_rows([by_seed[key] for by_seed in seeds.values()], seed=None)
        for seeds in variants.values()
        for key in next(iter(seeds.values()))
        if all(key in by_seed for by_seed in seeds.values())
    ]


def coverage(tokenizer: PreTrainedTokenizerBase, pairs: PairSet) -> dict[str, float]:
    """Return the fractions of words without unknown tokens (`coverage`) and of words that are a single known token."""
    texts = list(dict.fromkeys(text for pair in pairs.pairs for text in (pair.good, pair.bad)))
    words = list(_tokens_of_words(tokenizer, texts))
    covered = [count for count, is_unknown in words if not is_unknown]
    return {"coverage": len(covered) / len(words), "whole_words": covered.count(1) / len(words)} if words else {}


def find_words(text: str) -> list[tuple[int, int]]:
    """Return the start and end of every word: a run of letters and digits that may contain apostrophes.

    >>> [text[a:b] for text in ["It doesn't."] for a, b in find_words(text)]
    ['It', "doesn't"]
    """
    return [match.span() for match in _WORD.finditer(text)]


def _tokens_of_words(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> Iterator[tuple[int, bool]]:
    unknown = tokenizer.unk_token_id
    if not tokenizer.is_fast:
        for word in (text[start:end] for text in texts for start, end in find_words(text)):
            ids = tokenizer(word, add_special_tokens=False, verbose=False)["input_ids"]
            yield len(ids), unknown in ids
        return
    encoding = tokenizer(texts, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    for text, ids, offsets in zip(texts, encoding["input_ids"], encoding["offset_mapping"], strict=True):
        spans = [(start, end, token) for (start, end), token in zip(offsets, ids, strict=True) if end > start]
        for start, end in find_words(text):
            # Tokens that overlap the word, because a byte-level token starts with the space before it.
            inside = [token for first, last, token in spans if first < end and last > start]
            yield len(inside), unknown in inside
