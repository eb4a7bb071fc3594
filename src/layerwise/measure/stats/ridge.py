"""Ridge regression of many targets at once (Hoerl and Kennard 1970), solved in the smaller of its two dimensions.

With X (n, p) and Y (n, d) centered at their means, the fit at penalty `lambda`, a *share* of the mean eigenvalue of
X^T X, is

    B = (X^T X + lambda I)^-1 X^T Y = X^T (X X^T + lambda I)^-1 Y          prediction = mean(Y) + (x - mean(X)) B
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

PENALTIES = (0.1, 1.0, 10.0)
"""Penalties that are tried, as shares of the mean eigenvalue: from light to nearly the mean alone."""


@dataclass(frozen=True, slots=True, eq=False)
class RidgeFit:
    """A fitted map: coefficients (p, d) with the means that it starts from, (p,) and (d,)."""

    coefficients: Tensor
    x_mean: Tensor
    y_mean: Tensor

    def predict(self, x: Tensor) -> Tensor:
        # Folding the mean of x into the intercept saves a copy of x.
        return x @ self.coefficients + (self.y_mean - self.x_mean @ self.coefficients)

    def residual(self, x: Tensor, y: Tensor) -> Residual:
        return Residual(_sum_of_squares(y - self.predict(x)), _sum_of_squares(y - self.y_mean))


@dataclass(frozen=True, slots=True)
class Residual:
    """Sums of squares: of the errors of a prediction, and of the errors of the training mean. R2 = 1 - one by other."""

    errors: float
    total: float


@dataclass(frozen=True, slots=True, eq=False)
class Moments:
    """The sums of a regression: rows, sums of x and y, X^T X and X^T Y; not centred, so that they add up."""

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
    """The fit of y (n, d) on x (n, p) at every penalty in `shares`, float64.

    >>> x = torch.arange(6, dtype=torch.float64).view(3, 2)
    >>> round(fit_ridge(x, x[:, :1], [1e-9])[0].predict(x)[2].item(), 3)
    4.0
    """
    if len(x) >= x.shape[1]:
        return Moments.from_rows(x, y).fit(shares)
    x_mean, y_mean = x.mean(dim=0), y.mean(dim=0)
    centred = x - x_mean
    kernel = centred @ centred.T
    models = []
    for share in shares:
        dual = _solve(kernel, y - y_mean, _penalty(kernel, share, x.shape[1]))
        models.append(RidgeFit(centred.T @ dual, x_mean, y_mean))
    return models


def choose_penalty(x: Tensor, y: Tensor) -> float:
    kept = count_fitted_rows(len(x))
    errors = [fit.residual(x[kept:], y[kept:]).errors for fit in fit_ridge(x[:kept], y[:kept], PENALTIES)]
    return PENALTIES[errors.index(min(errors))]


def count_fitted_rows(rows: int) -> int:
    """How many of `rows` are fitted when a fifth is held out.

    >>> count_fitted_rows(10)
    8
    """
    return rows - max(1, rows // 5)


def _penalty(square: Tensor, share: float, predictors: int) -> float:
    return share * float(square.trace()) / predictors


def _solve(square: Tensor, right: Tensor, penalty: float) -> Tensor:
    if penalty <= 0:
        # Predictors that do not vary predict nothing.
        return torch.zeros_like(right)
    shifted = square.clone()
    shifted.diagonal().add_(penalty)
    return torch.cholesky_solve(right, torch.linalg.cholesky(shifted))


def _sum_of_squares(errors: Tensor) -> float:
    return float(errors.square().sum())
