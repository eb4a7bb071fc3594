"""Stratified effects: the mix of tasks is kept, and the interval is the textbook's."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from layerwise.measure.language.evaluation_data import WHOLE, Piece
from layerwise.measure.stats.grid import arrange
from layerwise.measure.stats.strata import Effect, Strata, stratified
from layerwise.results import Loss


def losses(changes: dict[str, list[float]], tokens: dict[str, int]) -> list[Loss]:
    """A plan `p` that changes the loss of every document by so many nats a token, and its baseline `b`."""
    rows = []
    for task, per_token in changes.items():
        for number, change in enumerate(per_token):
            count = tokens[task]
            rows.append(Loss("b", task, str(number), 0, 2.0 * count, count, 0))
            rows.append(Loss("p", task, str(number), 0, (2.0 + change) * count, count, 0))
    return rows


def pieces(sizes: dict[str, int], tokens: dict[str, int]) -> dict[Piece, int]:
    return {(task, str(number), WHOLE): tokens[task] for task, size in sizes.items() for number in range(size)}


def test_one_stratum_is_students_interval() -> None:
    draw = np.random.default_rng(0).normal(0.1, 0.3, size=20)
    strata = Strata.of(pieces({"text": 20}, {"text": 10}))
    found = stratified(arrange(losses({"text": draw.tolist()}, {"text": 10})), "b", ["p"], strata, 0.95)[0]
    error = draw.std(ddof=1) / np.sqrt(20)
    assert found.value == pytest.approx(draw.mean())
    assert found.error == pytest.approx(error)
    assert found.freedom == pytest.approx(19)
    assert found.high - found.value == pytest.approx(stats.t(19).ppf(0.975) * error)
    assert found.p() == pytest.approx(stats.ttest_1samp(draw, 0.0).pvalue)


def test_a_part_of_the_text_is_weighted_as_the_whole() -> None:
    """Prose is nine tenths of all tokens; a look with as many answers as prose documents must not forget that."""
    tokens = {"prose": 90, "answers": 10}
    strata = Strata.of(pieces({"prose": 16, "answers": 16}, tokens))
    assert strata.weight == {"answers": pytest.approx(0.1), "prose": pytest.approx(0.9)}
    part = arrange(losses({"prose": [0.01] * 8, "answers": [5.0] * 16}, tokens))
    assert stratified(part, "b", ["p"], strata, 0.95)[0].value == pytest.approx(0.9 * 0.01 + 0.1 * 5.0)


def test_tasks_with_few_documents_are_taken_together() -> None:
    tokens = {"a": 1, "b": 1, "c": 1}
    assert set(Strata.of(pieces({"a": 16, "b": 9, "c": 9}, tokens)).weight) == {"a", "the rest"}
    # Three leftover documents would have no interval of their own: then everything is one stratum.
    assert set(Strata.of(pieces({"a": 40, "b": 3}, tokens)).weight) == {"the rest"}


def test_coverage_with_unlike_tasks() -> None:
    """Two tasks with hundredfold unlike effects: the interval of a small sample holds the truth as often as it says."""
    tokens = {"prose": 100, "answers": 2}
    strata = Strata.of(pieces({"prose": 100, "answers": 400}, tokens))
    truth = strata.weight["prose"] * 0.05 + strata.weight["answers"] * 2.0
    held = 0
    for seed in range(300):
        draw = np.random.default_rng(seed)
        sample = {"prose": draw.normal(0.05, 0.1, 8).tolist(), "answers": draw.normal(2.0, 1.5, 8).tolist()}
        found = stratified(arrange(losses(sample, tokens)), "b", ["p"], strata, 0.95)[0]
        held += found.low <= truth <= found.high
    assert held >= 0.92 * 300


def test_an_effect_without_an_error_is_certain() -> None:
    assert Effect(0.0, 0.0, 0.0, error=0.0, freedom=9).p() == 1.0
    assert Effect(0.1, 0.1, 0.1, error=0.0, freedom=9).p() == 0.0
