"""CKA against its definition, its invariances, and the bias that it is there to avoid."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from layerwise.errors import MeasureError
from layerwise.measure.activations.similarity import alignment, unbiased_hsic


def features(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def slow_hsic(x: Tensor, y: Tensor) -> float:
    """The estimator as a mean of kernel products over ordered tuples of distinct tokens (Song et al. 2012,
    eq. 5).

    With sum over distinct indices: E[k12 l12] + E[k12] E[l34] - 2 E[k12 l13].
    """
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


def biased_cka(x: Tensor, y: Tensor) -> float:
    x, y = x - x.mean(dim=0), y - y.mean(dim=0)
    return float((x.T @ y).norm() ** 2 / ((x.T @ x).norm() * (y.T @ y).norm()))


@pytest.mark.parametrize("n", [4, 5, 7])
def test_hsic_equals_its_definition(n: int) -> None:
    layers = features(n, 3, n, 2) + 1.0
    fast = unbiased_hsic(layers)
    slow = [[slow_hsic(layers[i], layers[j]) for j in range(3)] for i in range(3)]
    torch.testing.assert_close(fast, torch.tensor(slow, dtype=torch.float64))


@given(st.integers(0, 1000))
def test_cka_does_not_see_rotation_scale_or_shift(seed: int) -> None:
    x = features(seed, 20, 6)
    rotation = torch.linalg.qr(features(seed + 1, 6, 6)).Q
    other = features(seed + 2, 20, 6)
    cka = alignment(unbiased_hsic(torch.stack([x, 3.0 * x @ rotation + 5.0, other])))
    torch.testing.assert_close(cka[0, 1], torch.tensor(1.0, dtype=torch.float64))
    torch.testing.assert_close(cka[0, 2], cka[1, 2])
    torch.testing.assert_close(cka.diagonal(), torch.ones(3, dtype=torch.float64))


def test_cka_sees_a_change_that_is_no_rotation() -> None:
    x = features(0, 200, 6)
    stretched = x * torch.tensor([10.0, 1, 1, 1, 1, 1], dtype=torch.float64)
    assert alignment(unbiased_hsic(torch.stack([x, stretched])))[0, 1] < 0.6


def test_independent_features_have_no_alignment_where_the_biased_estimate_sees_much() -> None:
    pairs = [features(seed, 2, 16, 64) for seed in range(300)]
    hsic = torch.stack([unbiased_hsic(pair) for pair in pairs]).mean(dim=0)
    assert abs(float(alignment(hsic)[0, 1])) < 0.01
    assert sum(biased_cka(*pair) for pair in pairs[:20]) / 20 > 0.7


def test_features_that_do_not_vary_have_no_alignment() -> None:
    cka = alignment(unbiased_hsic(torch.stack([features(1, 10, 4), torch.zeros(10, 4, dtype=torch.float64)])))
    assert torch.equal(cka.isnan(), torch.tensor([[False, True], [True, True]]))


def test_three_tokens_are_too_few() -> None:
    with pytest.raises(MeasureError, match="needs at least 4"):
        unbiased_hsic(features(0, 2, 3, 4))
