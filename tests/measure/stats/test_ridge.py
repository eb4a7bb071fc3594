import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from layerwise.measure.stats.ridge import PENALTIES, choose_penalty, fit_ridge
from tier import by_tier


def rows(count: int, columns: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 1 + torch.randn(count, columns, generator=generator, dtype=torch.float64)


@settings(max_examples=by_tier(fast=4, nightly=60), deadline=None)
@given(count=st.integers(3, 12), predictors=st.integers(1, 12), share=st.sampled_from(PENALTIES))
def test_fit_matches_the_closed_form(count: int, predictors: int, share: float) -> None:
    x, y = rows(count, predictors), rows(count, 2, seed=1)
    (fit,) = fit_ridge(x, y, (share,))
    centered = x - x.mean(dim=0)
    square = centered.T @ centered
    penalty = share * square.diagonal().mean()
    expected = torch.linalg.solve(square + penalty * torch.eye(predictors), centered.T @ (y - y.mean(dim=0)))
    assert torch.allclose(fit.coefficients, expected, atol=1e-8)
    assert torch.allclose(fit.predict(x), y.mean(dim=0) + centered @ expected, atol=1e-8)


def test_penalty_is_small_for_signal_and_large_for_noise() -> None:
    x = rows(200, 20)
    assert choose_penalty(x, x @ rows(20, 5, seed=1)) == min(PENALTIES)
    assert choose_penalty(x, rows(200, 5, seed=2)) == max(PENALTIES)


def test_constant_predictors_predict_the_mean() -> None:
    y = rows(12, 2)
    for predictors in (3, 30):
        (fit,) = fit_ridge(torch.zeros(12, predictors, dtype=torch.float64), y, (1.0,))
        assert torch.allclose(fit.predict(torch.zeros(1, predictors, dtype=torch.float64))[0], y.mean(dim=0))
