import math
from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from conftest import tiny_llama
from layerwise.data.batches import LabeledBatch, make_batches, make_item
from layerwise.data.text.tokens import Window
from layerwise.errors import MeasureError
from layerwise.measure.activations.similarity import (
    SimilaritySums,
    cka_from_hsic,
    find_sinks,
    similarity_sums,
    unbiased_hsic,
)
from layerwise.results.rows import Score
from layerwise.stack import load


def random(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def table(scores: list[Score]) -> dict[tuple[str, str], Score]:
    return {(score.metric, f"{score.state},{score.to_state}"): score for score in scores}


def values(states: list[Tensor], counted: Tensor | None = None, documents: list[str] | None = None) -> dict:
    counted = torch.ones(states[0].shape[:2], dtype=torch.bool) if counted is None else counted
    sums = SimilaritySums()
    sums.add(states, counted, documents or [f"d{row}" for row in range(len(counted))])
    return {key: score.value for key, score in table(sums.scores()).items()}


def cosine(x: Tensor, y: Tensor) -> float:
    return float(x.double() @ y.double() / (x.double().norm() * y.double().norm()))


def padded(*lengths: int) -> Tensor:
    return torch.arange(max(lengths)) < torch.tensor(lengths).unsqueeze(1)


def test_similarity_matches_a_loop_over_tokens() -> None:
    """Two batches with padding and three documents, one of which is in both batches."""
    batches = [
        ([random(seed, 2, 6, 5) + 0.5 for seed in (1, 2, 3)], padded(6, 4), ["a", "b"]),
        ([random(seed, 2, 5, 5) + 0.5 for seed in (4, 5, 6)], padded(5, 2), ["a", "c"]),
    ]
    sums = SimilaritySums()
    for batch in batches:
        sums.add(*batch)
    found = {key: score.value for key, score in table(sums.scores()).items()}

    for suffix, first in (("", 0), ("_no_sink", 1)):
        tokens = [
            (document, [state[row, position] for state in states])
            for states, counted, documents in batches
            for row, document in enumerate(documents)
            for position in range(first, int(counted[row].sum()))
        ]
        for i, j in [(0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2)]:
            cosines = [cosine(layers[i], layers[j]) for _, layers in tokens]
            angles = [math.acos(min(1.0, value)) / math.pi for value in cosines]
            null = [
                cosine(left[i], right[j]) for (one, left), (other, right) in product(tokens, tokens) if one != other
            ]
            assert found["cosine" + suffix, f"{i},{j}"] == pytest.approx(sum(cosines) / len(cosines))
            assert found["angular" + suffix, f"{i},{j}"] == pytest.approx(sum(angles) / len(angles), abs=1e-7)
            assert found["cosine_null" + suffix, f"{i},{j}"] == pytest.approx(sum(null) / len(null))

    for i, j in [(0, 0), (0, 2), (1, 2)]:
        flattened = [
            cosine(states[i][row][counted[row]].flatten(), states[j][row][counted[row]].flatten())
            for states, counted, _ in batches
            for row in range(2)
        ]
        assert found["cosine_flattened", f"{i},{j}"] == pytest.approx(sum(flattened) / 4)
    assert not any(metric == "cosine_flattened_no_sink" for metric, _ in found)


def test_sinks_are_first_and_massive_tokens() -> None:
    states = [torch.ones(2, 5, 4) for _ in range(4)]
    states[0][0, 2] = states[3][0, 3] = 99.0  # before the first and after the last layer: no sign of a sink
    states[1][0, 4] = 10.5
    states[2][1, 3] = 9.5  # below ten times the median
    counted = torch.tensor([[True] * 5, [False, False, True, True, True]])  # the second row is padded on the left
    states[1][1, 0] = 99.0  # padding
    expected = torch.tensor([[1, 0, 0, 0, 1], [0, 0, 1, 0, 0]]).bool()
    assert torch.equal(find_sinks(states, counted), expected)


def test_padding_does_not_change_sinks() -> None:
    states = [torch.ones(3, 5, 4) for _ in range(3)]
    counted = padded(5, 1, 1)
    for state in states:
        state[~counted] = 0.0
    assert find_sinks(states, counted).sum() == 3


def test_trailing_axes_are_flattened() -> None:
    states = [random(seed, 3, 6, 8) for seed in range(3)]
    assert values([state.view(3, 6, 2, 4) for state in states]) == values(states)


def by_window(documents: list[str]) -> dict[tuple[str, str], Score]:
    sums = SimilaritySums()
    for number, name in enumerate(documents):
        sums.add([random(9 * number + layer, 1, 12, 4) + 1 for layer in range(3)], padded(12), [name])
    return table(sums.scores())


def test_few_documents_use_windows_as_units() -> None:
    one, many = by_window(["d"] * 12), by_window([f"d{number}" for number in range(12)])
    for metric in ("cosine", "angular", "cosine_no_sink"):
        score, other = one[metric, "0,1"], many[metric, "0,1"]
        assert (score.value, score.low, score.high) == pytest.approx((other.value, other.low, other.high))
    assert one["cosine", "0,1"].documents == 1
    # Eight documents suffice as units again: two windows of one count once.
    mixed = by_window([*["d0"] * 6, *[f"d{number}" for number in range(1, 8)]])["cosine", "0,1"]
    assert mixed.low is not None
    assert mixed.documents == 8


def test_intervals_require_eight_documents() -> None:
    few, many = (by_window([f"d{number}" for number in range(documents)]) for documents in (7, 20))
    assert many["cka", "0,1"].low is None
    few, many = few["cosine", "0,1"], many["cosine", "0,1"]
    assert few.low is None
    assert (few.documents, few.tokens) == (7, 84)
    assert -1 <= many.low < many.value < many.high <= 1
    # 240 independent tokens: the interval is about two standard errors to each side.
    assert 0.02 < many.high - many.low < 0.2


def broken() -> list[Tensor]:
    states = [random(seed, 2, 6, 4) for seed in range(3)]
    states[2][1, 3, 0] = float("inf")
    return states


@pytest.mark.parametrize(
    ("states", "words"),
    [
        (broken(), "Hidden state 2 must be finite.*'d1'"),
        ([random(0, 2, 6, 4), random(1, 2, 6, 8)], "the same"),
        ([random(seed, 1, 3, 4) for seed in range(2)], "at least 4 tokens"),
    ],
)
def test_invalid_states_are_rejected(states: list[Tensor], words: str) -> None:
    with pytest.raises(MeasureError, match=words):
        values(states)
    with pytest.raises(MeasureError, match="needs at least 4"):
        unbiased_hsic(random(0, 2, 3, 4))


def test_similarity_uses_the_hidden_states_of_the_model() -> None:
    model = tiny_llama(3)
    windows = [Window(f"d{n}", "text", 0, tuple(range(n, n + 5 + n)), 1, 5 + n) for n in range(1, 5)]
    made = make_batches(windows, 20, 0)
    found = similarity_sums(load(model), made).scores()
    assert len(made) > 1
    sums = SimilaritySums()
    for batch in made:
        with torch.no_grad():
            states = model(**batch.inputs, output_hidden_states=True).hidden_states[:-1]
        sums.add(states, batch.attention_mask.bool(), [window.document for window in batch.windows])
    expected = table(sums.scores())
    assert max(score.to_state or 0 for score in found) == 3
    inner = [score for score in found if score.to_state != 3]
    assert inner
    for score in inner:
        if score.metric in ("cosine", "cosine_null", "cka"):
            pair = f"{score.state},{score.to_state}"
            assert score.value == pytest.approx(expected[score.metric, pair].value, abs=1e-5)


def test_batches_without_a_mask_count_every_token() -> None:
    inputs = {"input_ids": torch.arange(12).view(2, 6)}
    batch = LabeledBatch(inputs, torch.zeros(2, dtype=torch.long), (make_item("x"), make_item("y")))
    found = table(similarity_sums(load(tiny_llama(3)), [batch]).scores())
    assert found["cosine", "0,1"].tokens == 12
    assert found["cosine_no_sink", "0,1"].tokens == 10


def features(seed: int, *shape: int) -> Tensor:
    return random(seed, *shape).double()


def slow_hsic(x: Tensor, y: Tensor) -> float:
    """HSIC over distinct tokens (Song et al. 2012, eq. 5): E[k12 l12] + E[k12] E[l34] - 2 E[k12 l13]."""
    n = len(x)
    k = [[float(x[i] @ x[j]) for j in range(n)] for i in range(n)]
    l = [[float(y[i] @ y[j]) for j in range(n)] for i in range(n)]  # noqa: E741
    first = second = third = 0.0
    for i in range(n):
        for j in range(n):
            for q in range(n):
                for r in range(n):
                    if len({i, j, q, r}) == 4:
                        first += k[i][j] * l[i][j]
                        second += k[i][j] * l[q][r]
                        third += k[i][j] * l[i][q]
    return (first + second - 2 * third) / (n * (n - 1) * (n - 2) * (n - 3))


@pytest.mark.parametrize("n", [4, 5, 7])
def test_hsic_equals_its_definition(n: int) -> None:
    layers = features(n, 3, n, 2) + 1.0
    fast = unbiased_hsic(layers)
    slow = [[slow_hsic(layers[i], layers[j]) for j in range(3)] for i in range(3)]
    torch.testing.assert_close(fast, torch.tensor(slow, dtype=torch.float64))


@given(st.integers(0, 1000))
def test_cka_is_invariant_to_rotation_scale_and_shift(seed: int) -> None:
    x = features(seed, 20, 6)
    rotation = torch.linalg.qr(features(seed + 1, 6, 6)).Q
    other = features(seed + 2, 20, 6)
    cka = cka_from_hsic(unbiased_hsic(torch.stack([x, 3.0 * x @ rotation + 5.0, other])))
    torch.testing.assert_close(cka[0, 1], torch.tensor(1.0, dtype=torch.float64))
    torch.testing.assert_close(cka[0, 2], cka[1, 2])
    torch.testing.assert_close(cka.diagonal(), torch.ones(3, dtype=torch.float64))


def test_constant_features_have_no_cka() -> None:
    cka = cka_from_hsic(unbiased_hsic(torch.stack([features(1, 10, 4), torch.zeros(10, 4, dtype=torch.float64)])))
    assert torch.equal(cka.isnan(), torch.tensor([[False, True], [True, True]]))
