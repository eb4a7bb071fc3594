"""Can a layer's weights be predicted, entry by entry, from its two neighbours? R2 in sample, and twice held out.

For a tensor type read as units (see `layerwise.measure.tensors`), the rows of [W_{l-1}, W_{l+1}] are the predictors of
the same rows of W_l: a ridge regression with twice the stream's width as predictors and units as observations.

    in sample        fitted to all rows with hardly a penalty. On pure noise this is p / (n - 1), and 1 with more
                     predictors than rows: it says how flexible the fit is, not how alike the layers are
    held-out rows    fitted to four fifths of the rows, evaluated on the others
    held-out layers  one map for all layers, fitted to other layers' triples and evaluated on this one. No triple that
                     is fitted contains a layer that is predicted

R2 = 1 - sum of squared errors / sum of squares about the *training* mean, so that a prediction which is worse than
saying the mean is negative, as it is for independent layers. The penalty is chosen on training rows alone.

A *variant* changes what stands beside what: real, shuffled layers, units permuted within every layer, or another stack.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from statistics import median_low

import numpy as np
import torch
from torch import Tensor

from layerwise.measure.ridge import SHARES, Fit, Moments, Residual, best_share, fits, inner_rows
from layerwise.measure.tensors import Tensors, UnitSample, units

FEWEST_ROWS = 10
"""Units below which a tensor type is not regressed: a fifth of a fifth must be left to choose the penalty by."""

MOST_FOLDS = 3
"""Groups of neighbouring layers that are held out in turn; the sums of each are held in memory."""

_FOLD = 3
"""Triples of the smallest group: the two at its ends touch the next group, and only the others are fitted."""

_ROWS_A_LAYER = 512
"""Rows of each layer that the map for all layers is fitted to."""

_HARDLY = 1e-6
"""The penalty of the fit in sample, as a share of the mean eigenvalue: for the solver's sake only."""


@dataclass(frozen=True, slots=True, eq=False)
class Triples:
    """One tensor type's triples of successive layers, in some order and with units in place or permuted.

    `order` gives the layer that stands at each place of depth; `permuted` is the seed of the units' permutations.
    """

    tensors: Tensors
    sample: UnitSample
    order: tuple[int, ...]
    permuted: int | None = None

    @property
    def places(self) -> range:
        """The places that have a neighbour on both sides."""
        return range(1, len(self.order) - 1)

    @property
    def predictors_by_rows(self) -> float:
        """p / (n - 1): the R2 in sample of noise, at most 1."""
        return min(1.0, 2 * len(self.sample.columns) / (len(self.sample.rows) - 1))

    def read(self, place: int, rows: int | None = None) -> tuple[Tensor, Tensor]:
        """The first `rows` rows of predictors (rows, 2 width) and of targets (rows, width) at `place`."""
        before, here, after = (self._matrix(place + step)[:rows] for step in (-1, 0, 1))
        return torch.cat((before, after), dim=1), here

    def _matrix(self, place: int) -> Tensor:
        layer = self.order[place]
        matrix = units(self.tensors, layer, self.sample)
        if self.permuted is None:
            return matrix
        generator = torch.Generator().manual_seed(self.permuted + layer)
        return matrix[torch.randperm(len(matrix), generator=generator)]


@dataclass(frozen=True, slots=True)
class HeldRows:
    """What came of predicting a place's held-out rows, and the penalty that its training rows chose."""

    residual: Residual
    share: float


def in_sample(triples: Triples, place: int) -> Residual:
    """The residual of the fit to all rows at `place`, with hardly a penalty."""
    x, y = triples.read(place)
    (fit,) = fits(x, y, (_HARDLY,))
    return fit.residual(x, y)


def held_out_rows(triples: Triples, place: int) -> HeldRows:
    """The residual on the fifth of the rows at `place` that the fit has not seen."""
    x, y = triples.read(place)
    kept = inner_rows(len(x))
    share = best_share(x[:kept], y[:kept])
    (fit,) = fits(x[:kept], y[:kept], (share,))
    return HeldRows(fit.residual(x[kept:], y[kept:]), share)


def held_out_layers(triples: Triples, shares: Mapping[int, float]) -> dict[int, Residual]:
    """The residual at every place, predicted by a map fitted to places that share no layer with its group.

    `shares` gives the penalties that places chose on their own rows; a group is predicted with the median of the
    others'. Empty where there are too few layers for two groups (fewer than 8).
    """
    places = list(triples.places)
    count = min(MOST_FOLDS, len(places) // _FOLD)
    if count < 2:
        return {}
    folds = [[int(place) for place in fold] for fold in np.array_split(places, count)]
    sums = [_moments(triples, fold[1:-1]) for fold in folds]
    found: dict[int, Residual] = {}
    for number, fold in enumerate(folds):
        others = [each for other, each in enumerate(sums) if other != number]
        chosen = [share for place, share in shares.items() if place not in fold] or [SHARES[1]]
        fit = _fitted(others, median_low(chosen))
        for place in fold:
            found[place] = fit.residual(*triples.read(place))
    return found


def _moments(triples: Triples, places: Sequence[int]) -> Moments:
    return reduce(add, (Moments.of(*triples.read(place, _ROWS_A_LAYER)) for place in places))


def _fitted(moments: Sequence[Moments], share: float) -> Fit:
    (fit,) = reduce(add, moments).fits((share,))
    return fit
