"""Predictability: how much of a layer's weights its neighbours predict, at every level at which that has a meaning.

A ridge regression of one weight matrix on its neighbours' fits noise nearly as well as signal, so the published kind of
figure (R2 = 0.91) says nothing by itself. Here it stands beside what noise gives, and beside what the same regression
predicts of weights that it has not seen. Rows of measure `predictability`; task the tensor type (a weight's path inside
the block) or `all`, where each type weighs the same; subject a layer, a pair of layers, or `all`:

    in_sample_r2        of a fit to all rows. Null: `@p_over_n`, what noise gives
    heldout_rows_r2     of rows that the fit has not seen (`layerwise.measure.weights.weight_r2`)
    heldout_layers_r2   of layers that the fit has not seen; from 8 layers on. Nulls of both: `@random_twin`, the model
                        before training; `@permuted_units`; `@shuffled_layers`
    norm_r2             of a layer's Frobenius norm, predicted as the mean of its neighbours' with nothing fitted,
                        against the variance of the norms over depth; about -1/2 for independent norms. Any smooth
                        curve scores high. Null: `@shuffled_layers`
    subspace            alignment of the leading singular vectors of neighbouring layers on the side of the residual
                        stream, in 0..1 (`layerwise.measure.weights.subspace_similarity`), and `subspace_units` on the
                        other side. Nulls: `@random_twin`, `@shuffled_layers`
    docs                a similarity of neighbouring layers that does not ask which unit is which. Null: `@random_twin`
    predicted_weight_loss            nats per token of running the prediction where a text is given
                        (`layerwise.measure.weights.predicted_weight_loss`)

The R2 and alignments of `all` layers carry Student's interval over layers. Nulls are those of `all` layers, and are
repeated for each layer or pair under the task `all`; to save time the fit in sample, the nulls of held-out rows and the
random twin's alignments are taken at six positions spread over depth. A matrix with more than 1,024 stream coordinates
is sampled.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from layerwise.measure.interventions.intervention import ResultCache
from layerwise.measure.language.evaluation_data import EvalData
from layerwise.measure.stats.null_comparison import ALL, Fractions, NullComparison, Pooled, evenly_spaced
from layerwise.measure.stats.ridge import Residual
from layerwise.measure.stats.statistics import Numbers
from layerwise.measure.weights.predicted_weight_loss import predicted_weight_loss
from layerwise.measure.weights.prediction import predict_layer
from layerwise.measure.weights.shuffled_layers import Orders, bands, shuffled_orders
from layerwise.measure.weights.subspace_similarity import subspace_levels
from layerwise.measure.weights.tensors import (
    StackTensors,
    Tensors,
    TensorType,
    UnitSample,
    gram,
    stream_width,
    tensor_types,
    twin_tensors,
    unit_sample,
)
from layerwise.measure.weights.weight_r2 import (
    FEWEST_ROWS,
    Triples,
    chosen_shares,
    held_out_layers,
    held_out_rows,
    in_sample,
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

__all__ = ["PREDICTABILITY", "predict_layer", "predictability", "predictability_rows"]


def predictability(
    stack: Stack, data: EvalData | None = None, *, seed: int = 0, cache: ResultCache | None = None
) -> list[Score]:
    """How well neighbouring layers predict a layer's weights, and with a `data` what using the prediction costs.

    `seed` draws rows, permutations, orders and the random twin (whose rows are left out where a model has none);
    `cache` makes the cost of use resumable. Raises `MeasureError` for fewer than 4 layers, for layers without a weight
    matrix of equal shape, and for weights that are not finite.
    """
    scores = list(predictability_rows(StackTensors(stack), twin_tensors(stack, seed), seed=seed))
    return scores if data is None else [*scores, *predicted_weight_loss(stack, data, seed=seed, cache=cache)]


def predictability_rows(tensors: Tensors, twin: Tensors | None = None, *, seed: int = 0) -> Iterator[Score]:
    """The rows of `predictability` that need weights alone, for any source of them."""
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
    """Squared errors of the neighbours' mean: (..., depth) -> (..., depth - 2)."""
    return np.square(norms[..., 1:-1] - (norms[..., :-2] + norms[..., 2:]) / 2)


def _r2(
    metric: str, by_type: Mapping[str, Fractions], nulls: Mapping[str, Mapping[str, Pooled]] | None = None
) -> NullComparison:
    return NullComparison(metric, by_type, nulls or {}, scale=-1.0, shift=1.0)


def _fractions(residuals: Mapping[int, Residual]) -> Fractions:
    return {(position, None): (each.errors, each.total) for position, each in residuals.items()}


def _with_mean(lines: Mapping[str, float]) -> dict[str, float]:
    return {**lines, ALL: sum(lines.values()) / len(lines)} if lines else {}
