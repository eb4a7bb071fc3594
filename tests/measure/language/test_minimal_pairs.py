from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertForMaskedLM

from layerwise.data.suites.minimal_pairs import MinimalPair, PairSet
from layerwise.errors import MeasureError
from layerwise.measure.language import minimal_pairs
from layerwise.measure.language.minimal_pairs import (
    accuracy_interval,
    coverage,
    mean_accuracies,
    paradigm_rows,
    preferences,
    variant_rows,
)
from layerwise.measure.language.pseudo_likelihood import SentenceScorer
from layerwise.measure.stats.statistics import wilson
from layerwise.results.rows import Score
from row_names import named
from tiny_tokenizers import character_tokenizer, word_tokenizer

WORDS = ["cat", "cats", "dog", "runs", "run"]


def knowing(liking: dict[str, float], words: list[str] = WORDS) -> SentenceScorer:
    tokenizer = word_tokenizer(words)
    model = BertForMaskedLM(
        BertConfig(
            vocab_size=len(tokenizer),
            hidden_size=8,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=8,
            max_position_embeddings=16,
            tie_word_embeddings=False,
        )
    ).eval()
    vocabulary = tokenizer.get_vocab()
    with torch.no_grad():
        model.cls.predictions.decoder.weight.zero_()
        model.cls.predictions.decoder.bias.zero_()
        for word, logit in liking.items():
            model.cls.predictions.decoder.bias[vocabulary[word]] = logit
    return SentenceScorer.from_model(model, tokenizer)


def rows_of(pairs: Sequence[MinimalPair], judgments: np.ndarray, **model: Any) -> list[Score]:
    names = np.array([pair.paradigm for pair in pairs])
    paradigms = [
        row
        for name, members in PairSet("pairs", "some", tuple(pairs)).paradigms().items()
        for row in paradigm_rows("pairs", members, judgments[names == name], **model)
    ]
    return [*mean_accuracies(pairs, paradigms), *paradigms]


def test_planted_preferences_give_their_accuracy() -> None:
    """The model prefers `cat` and `runs`; pairs that turn on those are right, reversed wrong, and order is a tie."""
    pairs = (
        MinimalPair("cat runs", "cats runs", "number", "agreement"),
        MinimalPair("cat runs", "cat run", "number", "agreement"),
        MinimalPair("cats run", "cat run", "number", "agreement"),
        MinimalPair("cat runs", "runs cat", "order", "phrase"),
        MinimalPair("dog runs", "dog run", "other", "agreement"),
    )
    speaker = knowing({"cat": 2.0, "runs": 1.0})
    assert preferences(speaker, pairs).tolist() == [1.0, 1.0, 0.0, 0.5, 1.0]
    rows = rows_of(pairs, preferences(speaker, pairs), variant="planted", seed=0)
    found = {(row.kind, row.task, row.metric): row.value for row in rows}
    assert found["paradigm", "number", "accuracy"] == pytest.approx(2 / 3)
    assert found["paradigm", "order", "accuracy"] == 0.5
    assert found["paradigm", "order", "ties"] == 1.0
    assert found["phenomenon", "agreement", "accuracy"] == pytest.approx((2 / 3 + 1) / 2)
    assert found[None, "all", "accuracy"] == pytest.approx((2 / 3 + 1 / 2 + 1) / 3), "paradigms weigh the same"
    assert {named(row) for row in rows} == {"planted/0"}


def test_rounding_is_no_preference(monkeypatch: pytest.MonkeyPatch) -> None:
    unit = float(np.finfo(np.float32).eps) / 2
    said = [-20.0, -20.0 * (1 + 5 * unit), -20.0 * (1 + 5 * unit), -20.0, -20.0, -20.0 * (1 + 7 * unit), -21.0, -20.0]
    monkeypatch.setattr(minimal_pairs, "log_likelihoods", lambda *_, **__: np.array(said))
    speaker = knowing({})
    assert preferences(speaker, [MinimalPair("cat", "dog", "a")] * 4).tolist() == [0.5, 0.5, 1.0, 0.0]


def paradigm(right: int, tied: int, wrong: int) -> Score:
    judgments = np.repeat([1.0, 0.5, 0.0], [right, tied, wrong])
    return paradigm_rows("pairs", [MinimalPair("a", "b", "uid")], judgments)[0]


def test_stratified_interval_matches_a_sum_of_proportions() -> None:
    low, high = accuracy_interval([paradigm(300, 0, 700), paradigm(950, 0, 50)])
    error = np.sqrt(0.3 * 0.7 / 1000 + 0.95 * 0.05 / 1000) / 2
    assert (low, high) == pytest.approx((0.625 - 1.96 * error, 0.625 + 1.96 * error), abs=2e-3)
    pooled = wilson(1250, 2000)
    assert high - low < 0.9 * float(pooled.high - pooled.low)


def test_perfect_accuracy_has_an_interval_with_width() -> None:
    low, high = accuracy_interval([paradigm(10, 0, 0), paradigm(10, 0, 0)])
    assert low < 0.95
    assert high == pytest.approx(1.0)
    low, high = accuracy_interval([paradigm(3, 0, 0), paradigm(0, 0, 3)])
    assert low < 0.4 < 0.6 < high, "alike within each paradigm, and still a sample"


def test_skipped_pairs_are_counted() -> None:
    pairs = [MinimalPair("a", "b", "uid")] * 3
    rows = paradigm_rows("pairs", pairs, np.array([1.0, np.nan, 0.5]))
    assert [(row.metric, row.value, row.documents) for row in rows] == [
        ("accuracy", 0.75, 2),
        ("ties", 0.5, 2),
        ("skipped", 1.0, None),
    ]
    with pytest.raises(MeasureError, match="no pair of 'uid'"):
        paradigm_rows("pairs", pairs, np.full(3, np.nan))
    speaker = knowing({"cat": 1.0})
    long = MinimalPair("cat " * 30, "dog", "uid")
    found = preferences(speaker, [long, MinimalPair("cat", "dog", "uid")], too_long="skip")
    assert found.tolist()[1] == 1.0
    assert np.isnan(found[0])


def test_variant_is_the_mean_of_its_seeds() -> None:
    pairs = [MinimalPair("a", "b", "u", "t")] * 100
    rows = [
        *rows_of(pairs, np.repeat([1.0, 0.0], [60, 40]), variant="elc", seed=0),
        *rows_of(pairs, np.repeat([1.0, 0.0], [70, 30]), variant="elc", seed=1),
        *rows_of(pairs, np.repeat([1.0, 0.0], [55, 45]), variant="ltg", seed=0),
        Score("pairs", "only_here", 1.0, variant="elc", seed=0),
    ]
    found = {(named(row), row.task, row.metric): row for row in variant_rows("pairs", rows)}
    both = found["elc", "all", "accuracy"]
    assert both.value == pytest.approx(0.65)
    assert both.low < 0.02, "Student's interval of two seeds is very wide"
    assert found["ltg", "all", "accuracy"].low == rows[-4].low
    assert ("elc", "all", "only_here") not in found
    assert found["elc", "u", "ties"].low is None


def test_coverage_counts_known_and_single_token_words() -> None:
    pairs = PairSet("p", "p", (MinimalPair("cat meows", "cat runs", "u"),))
    assert coverage(word_tokenizer(WORDS), pairs) == {"coverage": 0.75, "whole_words": 0.75}
    spelt = coverage(character_tokenizer(), PairSet("p", "p", (MinimalPair("a cat", "b", "u"),)))
    assert spelt == {"coverage": 1.0, "whole_words": pytest.approx(2 / 3)}
