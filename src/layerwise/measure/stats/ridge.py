"""Ridge regression of many targets at once (Hoerl and Kennard 1970).

X (n, p) and Y (n, d) are centered, and lambda is a multiple of the mean eigenvalue of X^T X. The smaller of the two
systems is solved, primal or dual:

    B = (X^T X + lambda I)^-1 X^T Y = X^T (X X^T + lambda I)^-1 Y          prediction = mean(Y) + (x - mean(X)) B
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

PENALTIES = (0.1, 1.0, 10.0)
"""Penalties to try, as multiples of the mean eigenvalue of X^T X."""


@dataclass(frozen=True, slots=True, eq=False)
class RidgeFit:
    """The coefficients (p, d) of a ridge regression, and the means of x (p,) and y (d,)."""

    coefficients: Tensor
    x_mean: Tensor
    y_mean: Tensor

    def predict(self, x: Tensor) -> Tensor:
        # The intercept includes the mean of x, which saves a copy of x.
        return x @ self.coefficients + (self.y_mean - self.x_mean @ self.coefficients)

    def residual(self, x: Tensor, y: Tensor) -> Residual:
        return Residual(_sum_of_squares(y - self.predict(x)), _sum_of_squares(y - self.y_mean))


@dataclass(frozen=True, slots=True)
class Residual:
    """Sums of squared errors of a fit (`errors`) and of the training mean (`total`): R2 = 1 - errors / total."""

    errors: float
    total: float


@dataclass(frozen=True, slots=True, eq=False)
class Moments:
    """The number of rows and the sums of x, y, X^T X and X^T Y, which can be added up over batches."""

    count: int
    x: Tensor
    y: Tensor
    xx: Tensor
    xy: Tensor

    @staticmethod
    def from_rows(x: Tensor, y: Tensor) -> Moments:
        return Moments(len(x), x.sum(dim=0), y.sum(dim=0), x.T @ x, x.T @ y)

    def __add__(self, other: Moments) -> Moments:
        return Moments(
            self.count + other.count, self.x + other.x, self.y + other.y, self.xx + other.xx, self.xy + other.xy
        )

    def fit(self, shares: Sequence[float]) -> list[RidgeFit]:
        x_mean, y_mean = self.x / self.count, self.y / self.count
        xx = self.xx - self.count * torch.outer(x_mean, x_mean)
        xy = self.xy - self.count * torch.outer(x_mean, y_mean)
        return [RidgeFit(_solve(xx, xy, _penalty(xx, share, len(xx))), x_mean, y_mean) for share in shares]


def fit_ridge(x: Tensor, y: Tensor, shares: Sequence[float]) -> list[RidgeFit]:
    """Fit y (n, d) on x (n, p) once for each penalty in `shares`, given as multiples of the mean eigenvalue.

    >>> x = torch.arange(6, dtype=torch.float64).view(3, 2)
    >>> round(fit_ridge(x, x[:, :1], [1e-9])[0].predict(x)[2].item(), 3)
    4.0
    """
    if len(x) >= x.shape[1]:
        return Moments.from_rows(x, y).fit(shares)
    x_mean, y_mean = x.mean(dim=0), y.mean(dim=0)
    centered = x - x_mean
    kernel = centered @ centered.T
    models = []
    for share in shares:
        dual = _solve(kernel, y - y_mean, _penalty(kernel, share, x.shape[1]))
        models.append(RidgeFit(centered.T @ dual, x_mean, y_mean))
    return models


def choose_penalty(x: Tensor, y: Tensor) -> float:
    count = count_fitted_rows(len(x))
    errors = [fit.residual(x[count:], y[count:]).errors for fit in fit_ridge(x[:count], y[:count], PENALTIES)]
    return PENALTIES[errors.index(min(errors))]


def count_fitted_rows(rows: int) -> int:
    """Return how many of `rows` are used for fitting if a fifth is held out."""
    return rows - max(1, rows // 5)


def _penalty(square: Tensor, share: float, predictors: int) -> float:
    return share * float(square.trace()) / predictors


def _solve(square: Tensor, right: Tensor, penalty: float) -> Tensor:
    if penalty <= 0:
        # Constant predictors predict nothing.
        return torch.zeros_like(right)
    shifted = square.clone()
    shifted.diagonal().add_(penalty)
    return torch.cholesky_solve(right, torch.linalg.cholesky(shifted))


def _sum_of_squares(errors: Tensor) -> float:
    return float(errors.square().sum())
