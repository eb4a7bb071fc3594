"""Predictability: how much of a layer's weights its neighbours tell, at every level at which that has a meaning.

A ridge regression of one weight matrix on its neighbours' fits noise nearly as well as signal, so the published kind of
figure (R2 = 0.91) says nothing by itself. Here it stands beside what noise gives, and beside what the same regression
predicts of weights that it has not seen. Rows of measure `predictability`; task the tensor type (a weight's path inside
the block) or `all`, where each type weighs the same; subject a layer, a pair of layers, or `all`:

    in_sample_r2        of a fit to all rows. Null: `@p_over_n`, what noise gives
    heldout_rows_r2     of rows that the fit has not seen (`layerwise.measure.entrywise`)
    heldout_layers_r2   of layers that the fit has not seen; from 8 layers on. Nulls of both: `@random_twin`, the model
                        before training; `@permuted_units`; `@shuffled_layers`
    norm_r2             of a layer's Frobenius norm, predicted as the mean of its neighbours' with nothing fitted,
                        against the variance of the norms over depth; about -1/2 for independent norms. Any smooth
                        curve scores high. Null: `@shuffled_layers`
    subspace            alignment of the leading singular vectors of neighbouring layers on the side of the residual
                        stream, in 0..1 (`layerwise.measure.kinship`), and `subspace_units` on the other side. Nulls:
                        `@random_twin`, `@shuffled_layers`
    docs                a similarity of neighbouring layers that does not ask which unit is which. Null: `@random_twin`
    use_cost            nats per token of running the prediction (`layerwise.measure.use_cost`), where a text is given

The R2 and alignments of `all` layers carry Student's interval over layers. Nulls are those of `all` layers, and are
repeated for each layer or pair under the task `all`; to save time the fit in sample, the nulls of held-out rows and the
random twin's alignments are taken at six places spread over depth. A matrix with more than 1,024 stream coordinates is
sampled.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from layerwise.measure.entrywise import FEWEST_ROWS, Triples, chosen_shares, held_out_layers, held_out_rows, in_sample
from layerwise.measure.interventions import Ledger
from layerwise.measure.kinship import kinship_levels
from layerwise.measure.levels import Level, Places, spread
from layerwise.measure.pooling import ALL, Pooled
from layerwise.measure.prediction import predict_layer
from layerwise.measure.reading import Reading
from layerwise.measure.ridge import Residual
from layerwise.measure.shuffles import Orders, bands, shuffled_orders
from layerwise.measure.statistics import Numbers
from layerwise.measure.tensors import (
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
from layerwise.measure.use_cost import use_cost
from layerwise.results.rows import Score
from layerwise.stack import Stack

__all__ = ["MEASURE", "predict_layer", "predictability", "predictability_rows"]

MEASURE = "predictability"


def predictability(
    stack: Stack, reading: Reading | None = None, *, seed: int = 0, ledger: Ledger | None = None
) -> list[Score]:
    """How well neighbouring layers tell a layer's weights, and with a `reading` what using the prediction costs.

    `seed` draws rows, permutations, orders and the random twin (whose rows are left out where a model has none);
    `ledger` makes the cost of use resumable. Raises `MeasureError` for fewer than 4 layers, for layers without a weight
    matrix of equal shape, and for weights that are not finite.
    """
    scores = list(predictability_rows(StackTensors(stack), twin_tensors(stack, seed), seed=seed))
    return scores if reading is None else [*scores, *use_cost(stack, reading, seed=seed, ledger=ledger)]


def predictability_rows(tensors: Tensors, twin: Tensors | None = None, *, seed: int = 0) -> Iterator[Score]:
    """The rows of `predictability` that need weights alone, for any source of them."""
    types = tensor_types(tensors, MEASURE)
    width = stream_width(types)
    # A type's sample must not depend on which other types there are: its name, not its place, goes in.
    samples = [unit_sample(kind, width, seed ^ zlib.crc32(kind.name.encode())) for kind in types]
    orders = shuffled_orders(tensors.depth, seed)
    for level in (
        *entry_levels(tensors, twin, samples, orders, seed),
        norm_level(tensors, types, orders),
        *kinship_levels(tensors, twin, samples, orders),
    ):
        yield from level.rows(MEASURE)


def entry_levels(
    tensors: Tensors, twin: Tensors | None, samples: Sequence[UnitSample], orders: Orders, seed: int
) -> Iterator[Level]:
    """R2 of entries: in sample, held out over rows, held out over layers."""
    found: dict[str, dict[str, Places]] = defaultdict(dict)
    lines: dict[str, float] = {}
    trained = tuple(range(tensors.depth))
    for sample in samples:
        if len(sample.rows) < FEWEST_ROWS:
            continue
        real = Triples(tensors, sample, trained)
        variants = {
            "@permuted_units": Triples(tensors, sample, trained, permuted=seed),
            "@shuffled_layers": Triples(tensors, sample, tuple(orders[0].tolist())),
        }
        if twin is not None:
            variants["@random_twin"] = Triples(twin, sample, trained)
        name = sample.kind.name
        lines[name] = real.predictors_by_rows
        found["in_sample_r2"][name] = _places(in_sample(real, spread(real.places)))
        for variant, triples in {"": real, **variants}.items():
            shares = chosen_shares(triples)
            places = spread(triples.places) if variant else triples.places
            found[f"heldout_rows_r2{variant}"][name] = _places(held_out_rows(triples, shares, places))
            found[f"heldout_layers_r2{variant}"][name] = _places(held_out_layers(triples, shares))
    noise = {task: Pooled(line, line, line) for task, line in _with_mean(lines).items()}
    yield _r2("in_sample_r2", found["in_sample_r2"], {"p_over_n": noise})
    for metric in ("heldout_rows_r2", "heldout_layers_r2"):
        nulls = {key.partition("@")[2]: _r2(key, found[key]).pooled() for key in found if key.startswith(f"{metric}@")}
        yield _r2(metric, found[metric], nulls)


def norm_level(tensors: Tensors, types: Sequence[TensorType], orders: Orders) -> Level:
    """R2 of Frobenius norms, each predicted as the mean of both neighbours' norms."""
    found: dict[str, Places] = {}
    shuffled: dict[str, Numbers] = {}
    for kind in types:
        norms = np.sqrt(gram(tensors, kind).diagonal())
        variance = float(norms.var())
        # What rounding leaves of equal norms is no variance.
        if variance > 1e-12 * float(np.square(norms).mean()):
            errors = _norm_errors(norms).tolist()
            found[kind.name] = {str(place): (error, variance) for place, error in enumerate(errors, start=1)}
            shuffled[kind.name] = 1 - _norm_errors(norms[orders]).mean(axis=1) / variance
    return _r2("norm_r2", found, {"shuffled_layers": bands(shuffled)})


def _norm_errors(norms: Numbers) -> Numbers:
    """Squared errors of the neighbours' mean: (..., depth) -> (..., depth - 2)."""
    return np.square(norms[..., 1:-1] - (norms[..., :-2] + norms[..., 2:]) / 2)


def _r2(metric: str, by_type: Mapping[str, Places], nulls: Mapping[str, Mapping[str, Pooled]] | None = None) -> Level:
    return Level(metric, by_type, nulls or {}, scale=-1.0, shift=1.0)


def _places(residuals: Mapping[int, Residual]) -> Places:
    return {str(place): (each.errors, each.total) for place, each in residuals.items()}


def _with_mean(lines: Mapping[str, float]) -> dict[str, float]:
    return {**lines, ALL: sum(lines.values()) / len(lines)} if lines else {}
