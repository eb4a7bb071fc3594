"""Accuracy on minimal pairs, by paradigm, by phenomenon and overall.

A pair counts 1 if the acceptable text is more likely, 1/2 for a tie, otherwise 0. A paradigm has Wilson's interval;
several are averaged with equal weight, as in BLiMP (`interval`).

`coverage` is the share of words without an unknown token, `whole_words` the share that are one token.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from layerwise.data.suites.minimal_pairs import MinimalPair, PairSet
from layerwise.data.text.passages import Passage, words
from layerwise.errors import MeasureError
from layerwise.measure.language.pseudo_likelihood import SentenceScorer, TooLong, log_likelihoods
from layerwise.measure.stats.seeds import mean_of_rows
from layerwise.measure.stats.statistics import Numbers, wilson
from layerwise.results.rows import Score
from layerwise.results.vocabulary import PARADIGM, PHENOMENON
from layerwise.stack.placement import release_freed

CHANCE = 0.5
TIES, SKIPPED = "ties", "skipped"

Preferences = NDArray[np.float64]
"""One number a pair: 1 right, 0.5 undecided, 0 wrong."""


@dataclass(frozen=True, slots=True)
class ParadigmResult:
    """How a model judged the pairs of one paradigm: `right`, `tied` and `wrong` of them; `skipped` were too long."""

    paradigm: str
    phenomenon: str
    right: int
    tied: int
    wrong: int
    skipped: int = 0

    @property
    def pairs(self) -> int:
        return self.right + self.tied + self.wrong

    @property
    def accuracy(self) -> float:
        return (self.right + 0.5 * self.tied) / self.pairs


def margins(
    scorer: SentenceScorer,
    pairs: Sequence[MinimalPair],
    *,
    temperature: float = 1.0,
    too_long: TooLong = "refuse",
    progress: Callable[[float], None] | None = None,
) -> Numbers:
    """Return the log-likelihood of the better text minus that of the other in nats, shape (pairs,).

    It is `nan` if one of the texts is too long and `too_long` is "skip", and 0 within rounding, since rows of one batch
    may round differently. Raises what `log_likelihoods` raises.
    """
    passages = [
        passage
        for pair in pairs
        for passage in (Passage(pair.good, pair.good_start), Passage(pair.bad, pair.bad_start))
    ]
    nats = log_likelihoods(scorer, passages, temperature=temperature, too_long=too_long, progress=progress)
    good, bad = nats[0::2], nats[1::2]
    # Each term is a logit less a log-sum-exp in float32: three roundings of half an epsilon each, in both texts.
    rounding = 3 * np.finfo(np.float32).eps * np.maximum(np.abs(good), np.abs(bad))
    return np.where(np.abs(good - bad) <= rounding, 0.0, good - bad)


def preferences(scorer: SentenceScorer, pairs: Sequence[MinimalPair], **options: Any) -> Preferences:
    """1, 0.5 or 0 for each pair by its margin, shape (pairs,); see `margins` for the options."""
    return preferred(margins(scorer, pairs, **options))


def preferred(margins: Numbers) -> Preferences:
    """1 where the better text is the likelier, 0.5 for a margin of 0, else 0, `nan` without a margin.

    >>> preferred(np.array([0.3, 0.0, -2.0])).tolist()
    [1.0, 0.5, 0.0]
    """
    return 0.5 + 0.5 * np.sign(margins)


def paradigm_result(pairs: Sequence[MinimalPair], judgements: Preferences) -> ParadigmResult:
    """The judgements of one paradigm, counted. Raises `MeasureError` when not one of its pairs was judged."""
    right, tied, wrong = (int((judgements == value).sum()) for value in (1.0, 0.5, 0.0))
    if not right + tied + wrong:
        raise MeasureError(
            f"every pair of {pairs[0].paradigm!r} is longer than the model's positions; leave the suite out, or take "
            "a model with more positions"
        )
    skipped = int(np.isnan(judgements).sum())
    return ParadigmResult(pairs[0].paradigm, pairs[0].phenomenon, right, tied, wrong, skipped)


def judge_paradigms(
    scorer: SentenceScorer,
    pairs: PairSet,
    done: Collection[str] = (),
    *,
    temperature: float = 1.0,
    too_long: TooLong = "refuse",
    progress: Callable[[str, float], None] | None = None,
) -> Iterator[ParadigmResult]:
    """Yield the result of each paradigm that is not `done`; `progress` receives its name and the share of the suite."""
    paradigms = pairs.paradigms()
    release_freed()
    for number, (name, members) in enumerate(paradigms.items()):
        if name in done:
            continue

        def report_progress(share: float, name: str = name, number: int = number) -> None:
            if progress is not None:
                progress(name, (number + share) / len(paradigms))

        judged = preferences(scorer, members, temperature=temperature, too_long=too_long, progress=report_progress)
        result = paradigm_result(members, judged)
        release_freed()
        yield result


def suite_rows(
    pairs: PairSet,
    results: Mapping[str, ParadigmResult],
    tokenizer: PreTrainedTokenizerBase,
    *,
    arm: str,
    seed: int | None,
    temperature: float = 1.0,
) -> list[Score]:
    """Return the rows of a model on a suite: accuracies, chance, temperature and coverage (see the module)."""
    measured = {"chance": CHANCE, "temperature": temperature, **coverage(tokenizer, pairs)}
    return [
        *accuracy_rows(pairs.suite, arm, seed, [results[name] for name in pairs.paradigms()]),
        *(Score(pairs.suite, metric, value, arm=arm, seed=seed) for metric, value in measured.items()),
    ]


def accuracy_rows(suite: str, arm: str, seed: int | None, verdicts: Sequence[ParadigmResult]) -> list[Score]:
    model = {"arm": arm, "seed": seed}
    phenomena: dict[str, list[ParadigmResult]] = {}
    for each in verdicts:
        phenomena.setdefault(each.phenomenon, []).append(each)
    rows = [_accuracy(suite, list(verdicts), **model)]
    for name, members in phenomena.items():
        rows.append(_accuracy(suite, members, task=name, kind=PHENOMENON, **model))
    return [*rows, *(row for each in verdicts for row in paradigm_rows(suite, arm, seed, each))]


def paradigm_rows(suite: str, arm: str, seed: int | None, result: ParadigmResult) -> list[Score]:
    """Return the accuracy, share of ties and any skipped pairs of a paradigm; `stored_result` reads them back."""
    of: dict[str, Any] = {"task": result.paradigm, "kind": PARADIGM, "arm": arm, "seed": seed}
    pairs = result.pairs
    rows = [_accuracy(suite, [result], **of), Score(suite, TIES, result.tied / pairs, documents=pairs, **of)]
    if result.skipped:
        rows.append(Score(suite, SKIPPED, float(result.skipped), **of))
    return rows


def stored_result(rows: Sequence[Score], pairs: Sequence[MinimalPair]) -> ParadigmResult | None:
    """The verdict on `pairs`, those of one paradigm, in the rows of one model; `None` where it is not there."""
    by_metric = {row.metric: row for row in rows if (row.kind, row.task) == (PARADIGM, pairs[0].paradigm)}
    accuracy, ties = by_metric.get("accuracy"), by_metric.get(TIES)
    if accuracy is None or ties is None or accuracy.documents is None:
        return None
    tied = round(ties.value * accuracy.documents)
    right = round(accuracy.value * accuracy.documents - tied / 2)
    skipped = round(by_metric[SKIPPED].value) if SKIPPED in by_metric else 0
    wrong = accuracy.documents - tied - right
    return ParadigmResult(pairs[0].paradigm, pairs[0].phenomenon, right, tied, wrong, skipped)


def _accuracy(suite: str, members: Sequence[ParadigmResult], **of: Any) -> Score:
    value = float(np.mean([each.accuracy for each in members]))
    low, high = interval(members)
    return Score(suite, "accuracy", value, low, high, documents=sum(each.pairs for each in members), **of)


def interval(verdicts: Sequence[ParadigmResult]) -> tuple[float, float]:
    """Return the 95 % interval of the mean accuracy of paradigms (Zou and Donner 2008), from their Wilson intervals.

    low = mean - sqrt(sum_k (accuracy_k - low_k)^2) / n        high = mean + sqrt(sum_k (high_k - accuracy_k)^2) / n
    """
    shares, lows, highs = np.array([wilson(each.accuracy * each.pairs, each.pairs).row() for each in verdicts]).T
    mean, count = float(shares.mean()), len(verdicts)
    below, above = np.square(shares - lows).sum(), np.square(highs - shares).sum()
    return mean - float(np.sqrt(below)) / count, mean + float(np.sqrt(above)) / count


def arm_rows(suite: str, rows: Sequence[Score]) -> list[Score]:
    """Return the mean of each arm over its seeds, with its interval over seeds and pairs; rows need all seeds."""
    arms: dict[str, dict[int, dict[tuple[str, str | None, str], Score]]] = {}
    for row in rows:
        if row.arm is not None and row.seed is not None and row.measure == suite:
            arms.setdefault(row.arm, {}).setdefault(row.seed, {})[row.task, row.kind, row.metric] = row
    return [
        mean_of_rows([by_seed[key] for by_seed in seeds.values()], seed=None)
        for seeds in arms.values()
        for key in next(iter(seeds.values()))
        if all(key in by_seed for by_seed in seeds.values())
    ]


def coverage(tokenizer: PreTrainedTokenizerBase, pairs: PairSet) -> dict[str, float]:
    texts = list(dict.fromkeys(text for pair in pairs.pairs for text in (pair.good, pair.bad)))
    counted = known = whole = 0
    for tokens, unknown in _tokens_of_words(tokenizer, texts):
        counted += 1
        known += not unknown
        whole += tokens == 1 and not unknown
    return {"coverage": known / counted, "whole_words": whole / counted} if counted else {}


def _tokens_of_words(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> Iterator[tuple[int, bool]]:
    unknown = tokenizer.unk_token_id
    if not tokenizer.is_fast:
        for word in (text[start:end] for text in texts for start, end in words(text)):
            ids = tokenizer(word, add_special_tokens=False, verbose=False)["input_ids"]
            yield len(ids), unknown in ids
        return
    encoding = tokenizer(texts, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    for text, ids, offsets in zip(texts, encoding["input_ids"], encoding["offset_mapping"], strict=True):
        spans = [(start, end, token) for (start, end), token in zip(offsets, ids, strict=True) if end > start]
        for start, end in words(text):
            # A byte-level token begins with the space before its word: what counts is that the two overlap.
            inside = [token for first, last, token in spans if first < end and last > start]
            yield len(inside), unknown in inside
