from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerwise.errors import MeasureError
from layerwise.measure.language.bigram import STRENGTHS, BigramModel

VOCABULARY = 8


def chain(length: int, seed: int, stay: float = 0.9) -> list[int]:
    draw = np.random.default_rng(seed)
    ids = [0]
    for _ in range(length - 1):
        ids.append((ids[-1] + 1) % VOCABULARY if draw.random() < stay else int(draw.integers(VOCABULARY)))
    return ids


def test_loss_of_a_markov_chain_is_its_entropy() -> None:
    table = BigramModel.fit([chain(40_000, 1)], [chain(2_000, 2)])
    told = np.array(chain(20_000, 3))
    likely, other = 0.9 + 0.1 / VOCABULARY, 0.1 / VOCABULARY
    entropy = -likely * np.log(likely) - (VOCABULARY - 1) * other * np.log(other)
    assert table.nll(told[:-1], told[1:]).mean() == pytest.approx(entropy, abs=0.02)
    assert table.single_nll(told).mean() == pytest.approx(np.log(VOCABULARY), abs=0.01)


def test_smoothing_matches_single_tokens_without_signal() -> None:
    draw = np.random.default_rng(0)
    train, selecting, held_out = (draw.integers(VOCABULARY, size=size) for size in (200, 4_000, 4_000))
    table = BigramModel.fit([train], [selecting])
    assert table.strength == max(STRENGTHS)
    gap = table.nll(held_out[:-1], held_out[1:]).mean() - table.single_nll(held_out[1:]).mean()
    assert abs(gap) < 0.002
    careless = replace(table, strength=min(STRENGTHS))
    assert careless.nll(held_out[:-1], held_out[1:]).mean() > table.nll(held_out[:-1], held_out[1:]).mean() + 0.05


@given(
    st.lists(st.lists(st.integers(0, VOCABULARY - 1), min_size=2, max_size=12), min_size=1, max_size=5),
    st.sampled_from(STRENGTHS),
)
def test_probabilities_sum_to_one(texts: list[list[int]], strength: float) -> None:
    table = replace(BigramModel.fit(texts), strength=strength)
    size = len(table.singles)
    before, after = np.repeat(np.arange(size), size), np.tile(np.arange(size), size)
    np.testing.assert_allclose(np.exp(-table.nll(before, after)).reshape(size, size).sum(axis=1), 1.0)
    np.testing.assert_allclose(np.exp(-table.single_nll(np.arange(size))).sum(), 1.0)


def test_unseen_ids_have_the_lowest_probability() -> None:
    table = BigramModel.fit([[0, 1, 0, 1]])
    seen, unseen = table.nll(np.array([0]), np.array([1])), table.nll(np.array([0, 99]), np.array([99, 1]))
    assert (unseen > seen).all()
    assert np.isfinite(unseen).all()
    with pytest.raises(MeasureError, match="at least 2 tokens"):
        BigramModel.fit([[1], []])
