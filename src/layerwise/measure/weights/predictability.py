"""Predictability: how much of a layer's weights its neighbors predict. Rows by tensor type (`part`) and layer or pair.

in_sample_r2                  of a fit to all rows; null `p_over_n`. No rows for types with as many predictors as rows
heldout_rows_r2, _layers_r2   not seen by the fit (`layerwise.measure.weights.prediction`); layers from 8 on; nulls
                              `random_twin`, `permuted_units`, `shuffled_layers`
norm_r2                       of a layer's norm by the mean of its neighbors'; null `shuffled_layers`
subspace, subspace_units      |U^T V|_F^2 / k of the k leading singular vectors, k / n for random spans of n
docs                          Gumbel location of the units' largest |cosine| (DOCS, arXiv 2501.16650)
"""

from __future__ import annotations

import math
import zlib
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from layerwise.measure.stats.null_comparison import ALL, Fractions, NullComparison, Pooled, evenly_spaced
from layerwise.measure.stats.ridge import Residual
from layerwise.measure.stats.statistics import Numbers
from layerwise.measure.weights.prediction import (
    FEWEST_ROWS,
    Triples,
    chosen_shares,
    held_out_layers,
    held_out_rows,
    in_sample,
)
from layerwise.measure.weights.tensors import (
    Orders,
    StackTensors,
    Tensors,
    TensorType,
    UnitSample,
    bands,
    gram,
    shuffled_orders,
    stream_width,
    tensor_types,
    twin_tensors,
    unit_sample,
    units,
)
from layerwise.results.rows import Score
from layerwise.results.vocabulary import (
    P_OVER_N,
    PERMUTED_UNITS,
    PREDICTABILITY,
    RANDOM_TWIN,
    SHUFFLED_LAYERS,
)
from layerwise.stack import Stack


def predictability(stack: Stack, *, seed: int = 0) -> list[Score]:
    """Compute how well neighboring layers predict a layer's weights.

    `seed` draws rows, permutations, orders and the random twin (no rows if a model has none). Raises `MeasureError` for
    fewer than 4 layers, without a weight matrix of equal shape in all layers, and for weights that are not finite.
    """
    return list(predictability_rows(StackTensors(stack), twin_tensors(stack, seed), seed=seed))


def predictability_rows(tensors: Tensors, twin: Tensors | None = None, *, seed: int = 0) -> Iterator[Score]:
    types = tensor_types(tensors, PREDICTABILITY)
    width = stream_width(types)
    # A type's sample must not depend on which other types there are: its name, not its index, goes in.
    samples = [unit_sample(kind, width, seed ^ zlib.crc32(kind.name.encode())) for kind in types]
    orders = shuffled_orders(tensors.depth, seed)
    for level in (
        *entry_levels(tensors, twin, samples, orders, seed),
        norm_level(tensors, types, orders),
        *subspace_levels(tensors, twin, samples, orders),
    ):
        yield from level.rows(PREDICTABILITY)


def entry_levels(
    tensors: Tensors, twin: Tensors | None, samples: Sequence[UnitSample], orders: Orders, seed: int
) -> Iterator[NullComparison]:
    """R2 of entries: in sample, held out over rows, held out over layers."""
    by_metric: dict[tuple[str, str], dict[str, Fractions]] = defaultdict(dict)
    lines: dict[str, float] = {}
    trained = tuple(range(tensors.depth))
    for sample in samples:
        if len(sample.rows) < FEWEST_ROWS:
            continue
        real = Triples(tensors, sample, trained)
        variants = {
            PERMUTED_UNITS: Triples(tensors, sample, trained, permuted=seed),
            SHUFFLED_LAYERS: Triples(tensors, sample, tuple(orders[0].tolist())),
        }
        if twin is not None:
            variants[RANDOM_TWIN] = Triples(twin, sample, trained)
        name = sample.kind.name
        if real.predictors_by_rows < 1:  # otherwise the fit is exact, whatever the weights are
            lines[name] = real.predictors_by_rows
            by_metric["in_sample_r2", ""][name] = _fractions(in_sample(real, evenly_spaced(real.positions)))
        for variant, triples in {"": real, **variants}.items():
            shares = chosen_shares(triples)
            positions = evenly_spaced(triples.positions) if variant else triples.positions
            by_metric["heldout_rows_r2", variant][name] = _fractions(held_out_rows(triples, shares, positions))
            by_metric["heldout_layers_r2", variant][name] = _fractions(held_out_layers(triples, shares))
    noise = {task: Pooled(line, line, line) for task, line in _with_mean(lines).items()}
    yield _r2("in_sample_r2", by_metric["in_sample_r2", ""], {P_OVER_N: noise})
    for metric in ("heldout_rows_r2", "heldout_layers_r2"):
        nulls = {
            null: _r2(metric, by_type).pooled() for (of, null), by_type in by_metric.items() if of == metric and null
        }
        yield _r2(metric, by_metric[metric, ""], nulls)


def norm_level(tensors: Tensors, types: Sequence[TensorType], orders: Orders) -> NullComparison:
    """R2 of Frobenius norms, each predicted as the mean of both neighbours' norms."""
    by_type: dict[str, Fractions] = {}
    shuffled: dict[str, Numbers] = {}
    for kind in types:
        norms = np.sqrt(gram(tensors, kind).diagonal())
        variance = float(norms.var())
        # What rounding leaves of equal norms is no variance.
        if variance > 1e-12 * float(np.square(norms).mean()):
            errors = _norm_errors(norms).tolist()
            by_type[kind.name] = {(position, None): (error, variance) for position, error in enumerate(errors, start=1)}
            shuffled[kind.name] = 1 - _norm_errors(norms[orders]).mean(axis=1) / variance
    return _r2("norm_r2", by_type, {SHUFFLED_LAYERS: bands(shuffled)})


def _norm_errors(norms: Numbers) -> Numbers:
    return np.square(norms[..., 1:-1] - (norms[..., :-2] + norms[..., 2:]) / 2)


def _r2(
    metric: str, by_type: Mapping[str, Fractions], nulls: Mapping[str, Mapping[str, Pooled]] | None = None
) -> NullComparison:
    return NullComparison(metric, by_type, nulls or {}, scale=-1.0, shift=1.0)


def _fractions(residuals: Mapping[int, Residual]) -> Fractions:
    return {(position, None): (each.errors, each.total) for position, each in residuals.items()}


def _with_mean(lines: Mapping[str, float]) -> dict[str, float]:
    return {**lines, ALL: sum(lines.values()) / len(lines)} if lines else {}


_MOST_LEADING = 16


@dataclass(frozen=True, slots=True, eq=False)
class Leading:
    """Leading singular vectors of one matrix, orthonormal columns: of the stream (width, k), of units (units, k)."""

    stream: Tensor
    units: Tensor


def leading_count(units: int, width: int) -> int:
    return max(1, min(_MOST_LEADING, units // 4, width // 4))


def leading(matrix: Tensor) -> Leading:
    """The leading singular vectors of a matrix (units, width), float64."""
    count = leading_count(*matrix.shape)
    tall = len(matrix) >= matrix.shape[1]
    # The smaller of the two Gram matrices has them all; the other side follows by one product.
    square = matrix.T @ matrix if tall else matrix @ matrix.T
    near = torch.linalg.eigh(square).eigenvectors[:, -count:].clone()  # a view would hold all of them
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
    spans: Mapping[int, Leading]
    docs: Mapping[int, float]

    @staticmethod
    def of(tensors: Tensors, sample: UnitSample, firsts: Sequence[int]) -> _Neighbours:
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
    return {(first, first + 1): (value, 1.0) for first, value in values.items()}


def _directions(matrix: Tensor) -> Tensor:
    return matrix / matrix.norm(dim=1, keepdim=True).clamp_min(torch.finfo(matrix.dtype).tiny)


def _gumbel_location(maxima: Tensor) -> float:
    spread = float(maxima.std()) if len(maxima) > 1 else 0.0
    return float(maxima.mean()) - float(np.euler_gamma) * spread * math.sqrt(6) / math.pi
