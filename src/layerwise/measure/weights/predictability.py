"""Predictability: how much of a layer's weights its neighbors predict. Rows by tensor type (`part`) and layer.

in_sample_r2                  of a fit to all rows; null `p_over_n`. No rows for types with as many predictors as rows
heldout_rows_r2, _layers_r2   not seen by the fit (`layerwise.measure.weights.prediction`); layers from 8 on; nulls
                              `random_twin`, `permuted_units`, `shuffled_layers`
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from layerwise.measure.stats.estimate import Bounded
from layerwise.measure.stats.null_comparison import (
    ALL,
    Fractions,
    complement_rows,
    evenly_spaced,
    pooled_complements,
)
from layerwise.measure.stats.ridge import Residual
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
    UnitSample,
    shuffled_orders,
    stream_width,
    tensor_types,
    twin_tensors,
    unit_sample,
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

    `seed` draws rows, permutations, orders and the random twin (no rows if a model has none). Raises
    `MeasureError` without a weight matrix of equal shape in all layers, and for weights that are not finite.
    """
    return list(predictability_rows(StackTensors(stack), twin_tensors(stack, seed), seed=seed))


def predictability_rows(tensors: StackTensors, twin: StackTensors | None = None, *, seed: int = 0) -> Iterator[Score]:
    types = tensor_types(tensors, PREDICTABILITY)
    width = stream_width(types)
    # A type's sample must not depend on which other types there are: its name, not its index, goes in.
    samples = [unit_sample(kind, width, seed ^ zlib.crc32(kind.name.encode())) for kind in types]
    yield from sampled_rows(tensors, twin, samples, shuffled_orders(tensors.depth, seed), seed)


def sampled_rows(
    tensors: StackTensors, twin: StackTensors | None, samples: Sequence[UnitSample], orders: Orders, seed: int
) -> Iterator[Score]:
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
    if lines:
        lines[ALL] = sum(lines.values()) / len(lines)
    noise: dict[str, Bounded] = {name: (line, line, line) for name, line in lines.items()}
    yield from complement_rows(PREDICTABILITY, "in_sample_r2", by_metric["in_sample_r2", ""], {P_OVER_N: noise})
    for metric in ("heldout_rows_r2", "heldout_layers_r2"):
        nulls = {
            null: pooled_complements(by_type) for (of, null), by_type in by_metric.items() if of == metric and null
        }
        yield from complement_rows(PREDICTABILITY, metric, by_metric[metric, ""], nulls)


def _fractions(residuals: Mapping[int, Residual]) -> Fractions:
    return {position: (each.errors, each.total) for position, each in residuals.items()}
