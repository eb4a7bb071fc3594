"""Subspace similarity: are neighbouring layers alike in a way that does not depend on which unit is which?

Two indices of a pair of layers, for one tensor type read as units (units, width):

    subspace   mean squared cosine of the principal angles between the spans of the leading singular vectors,
                   |U^T V|_F^2 / k          U, V: the k leading ones, orthonormal
               1 where the spans are the same, k / n on average for random spans of n dimensions. On the side of the
               residual stream this is the structure that trained models have (Jeong et al. 2026, arXiv 2605.04971)
    docs       how near every unit's nearest relative in the other layer is: the largest |cosine| of each unit with all
               units of the other layer, summed up by the location of a Gumbel distribution fitted by moments to these
               maxima, averaged over both directions (after DOCS, arXiv 2501.16650)

Both are unchanged when a layer's units are permuted, which entrywise prediction is not.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from layerwise.measure.stats.null_comparison import Fractions, NullComparison, Pooled, evenly_spaced
from layerwise.measure.stats.statistics import Numbers
from layerwise.measure.weights.shuffled_layers import Orders, bands
from layerwise.measure.weights.tensors import Tensors, UnitSample, units
from layerwise.results.vocabulary import RANDOM_TWIN, SHUFFLED_LAYERS

_MOST_LEADING = 16
"""Singular vectors that span a subspace, or a quarter of the smaller axis where that is fewer."""


@dataclass(frozen=True, slots=True, eq=False)
class Leading:
    """Leading singular vectors of one matrix, orthonormal columns: of the stream (width, k), of units (units, k)."""

    stream: Tensor
    units: Tensor


def leading_count(units: int, width: int) -> int:
    """How many singular vectors are compared, k."""
    return max(1, min(_MOST_LEADING, units // 4, width // 4))


def leading(matrix: Tensor) -> Leading:
    """The leading singular vectors of a matrix (units, width), float64."""
    count = leading_count(*matrix.shape)
    tall = len(matrix) >= matrix.shape[1]
    # The smaller of the two Gram matrices has them all; the other side follows by one product.
    square = matrix.T @ matrix if tall else matrix @ matrix.T
    near = torch.linalg.eigh(square).eigenvectors[:, -count:]
    far = torch.linalg.qr(matrix @ near if tall else matrix.T @ near).Q
    return Leading(near, far) if tall else Leading(far, near)


def alignments(bases: Sequence[Tensor]) -> Numbers:
    """The subspace index of every pair of spans, from orthonormal columns (n, k) each: (spans, spans)."""
    count = bases[0].shape[1]
    side_by_side = torch.cat(list(bases), dim=1)
    products = (side_by_side.T @ side_by_side).square()
    return np.asarray(products.reshape(len(bases), count, len(bases), count).sum(dim=(1, 3)).numpy() / count)


def docs(left: Tensor, right: Tensor) -> float:
    """The permutation-invariant similarity of two matrices (units, width), in 0..1.

    >>> round(docs(torch.eye(4), torch.eye(4).flip(0)), 3)
    1.0
    """
    cosines = (_directions(left) @ _directions(right).T).abs()
    return (_gumbel_location(cosines.amax(dim=0)) + _gumbel_location(cosines.amax(dim=1))) / 2


def subspace_levels(
    tensors: Tensors, twin: Tensors | None, samples: Sequence[UnitSample], orders: Orders
) -> Iterator[NullComparison]:
    """The levels `subspace`, `subspace_units` and `docs` of all pairs of neighbouring layers, with their nulls."""
    every = range(tensors.depth - 1)
    real = {sample.kind.name: _Neighbours.of(tensors, sample, every) for sample in samples}
    fresh = (
        {} if twin is None else {each.kind.name: _Neighbours.of(twin, each, evenly_spaced(every)) for each in samples}
    )
    yield _subspace_level("subspace", real, fresh, orders, lambda each: each.stream)
    yield _subspace_level("subspace_units", real, fresh, orders, lambda each: each.units)
    yield NullComparison(
        "docs",
        _docs_fractions(real),
        {RANDOM_TWIN: NullComparison("docs", _docs_fractions(fresh)).pooled()} if fresh else {},
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Neighbours:
    """One tensor type's pairs of neighbours: leading vectors of all layers in them, and DOCS by the first of a pair."""

    spans: Mapping[int, Leading]
    docs: Mapping[int, float]

    @staticmethod
    def of(tensors: Tensors, sample: UnitSample, firsts: Sequence[int]) -> _Neighbours:
        """Read every layer of the pairs (l, l + 1), l in `firsts`, once; two are held at a time."""
        spans: dict[int, Leading] = {}
        similar: dict[int, float] = {}
        held: deque[Tensor] = deque(maxlen=2)
        for layer in sorted({layer for first in firsts for layer in (first, first + 1)}):
            matrix = units(tensors, layer, sample)
            held.append(matrix)
            spans[layer] = leading(matrix)
            if layer - 1 in firsts:
                similar[layer - 1] = docs(*held)
        return _Neighbours(spans, similar)


def _subspace_level(
    metric: str,
    real: Mapping[str, _Neighbours],
    fresh: Mapping[str, _Neighbours],
    orders: Orders,
    side: Callable[[Leading], Tensor],
) -> NullComparison:
    of_type, shuffled = {}, {}
    for name, each in real.items():
        pairs = alignments([side(span) for span in each.spans.values()])
        of_type[name] = _pair_fractions({first: float(pairs[first, first + 1]) for first in each.docs})
        shuffled[name] = pairs[orders[:, :-1], orders[:, 1:]].mean(axis=1)
    nulls: dict[str, Mapping[str, Pooled]] = {SHUFFLED_LAYERS: bands(shuffled)}
    if fresh:
        twins = {
            name: _pair_fractions({first: _alignment(each.spans, first, side) for first in each.docs})
            for name, each in fresh.items()
        }
        nulls[RANDOM_TWIN] = NullComparison(metric, twins).pooled()
    return NullComparison(metric, of_type, nulls)


def _alignment(spans: Mapping[int, Leading], first: int, side: Callable[[Leading], Tensor]) -> float:
    return float(alignments([side(spans[first]), side(spans[first + 1])])[0, 1])


def _docs_fractions(neighbours: Mapping[str, _Neighbours]) -> dict[str, Fractions]:
    return {name: _pair_fractions(each.docs) for name, each in neighbours.items()}


def _pair_fractions(values: Mapping[int, float]) -> Fractions:
    """Values of pairs as ratios to one."""
    return {(first, first + 1): (value, 1.0) for first, value in values.items()}


def _directions(matrix: Tensor) -> Tensor:
    return matrix / matrix.norm(dim=1, keepdim=True).clamp_min(torch.finfo(matrix.dtype).tiny)


def _gumbel_location(maxima: Tensor) -> float:
    """Location by moments: mean less Euler's constant times the scale, which is sqrt(6) / pi standard deviations."""
    spread = float(maxima.std()) if len(maxima) > 1 else 0.0
    return float(maxima.mean()) - float(np.euler_gamma) * spread * math.sqrt(6) / math.pi
