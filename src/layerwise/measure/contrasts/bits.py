"""Compute the cost of quantizing each layer, and the part that is due to the direction of the error, not its size.

    delta_nll     L(l quantized) - L(original model)                    `bits`, for layer l and a GGUF type, nats/token
    excess        L(l quantized) - mean L(l with noise of that norm)    `bits_noise`
    stands_out    difference of a layer less the mean over the other layers

Paired contrasts with an interval over documents and a p-value (`assess_effects`) (Holm, over layers and types).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any

import numpy as np

from layerwise.measure.contrasts.contrast import Part, Resampled, arms, first
from layerwise.measure.stats.statistics import Seed, assess_effects, holm_by_key
from layerwise.plan import Plan
from layerwise.plan.checks import quantized_layers
from layerwise.results.rows import Loss, PlanRecord, Score
from layerwise.results.vocabulary import BITS, DELTA, EXCESS, SAME_NORM_RANDOM, STANDS_OUT

FAMILIES = frozenset({"bits", "bits_noise"})


def bits_contrasts(losses: Sequence[Loss], records: Iterable[PlanRecord], depth: int, *, seed: Seed = 0) -> list[Score]:
    """Return the rows by type (`condition`) and layer, without a layer for the mean over layers.

    `stands_out` is `against` its metric.
    """
    plans: dict[str, dict[str, dict[int, list[str]]]] = {family: defaultdict(dict) for family in FAMILIES}
    measured = {row.plan for row in losses}
    compared = [record for record in records if record.family in FAMILIES and record.plan in measured]
    for record in compared:
        ((layer, _),) = quantized_layers(Plan.parse(record.plan))
        plans[record.family][record.strategy].setdefault(layer, []).append(record.plan)
    comparisons = sum(map(len, plans["bits"].values()))
    rows: list[Score] = []
    for kind, by_layer in plans["bits"].items():
        layers, whole = sorted(by_layer), str(Plan.identity(depth))
        for metric, against, part in _list_quantities(losses, whole, by_layer, plans["bits_noise"].get(kind, {})):
            drawn = Resampled.of([part], seed=seed)
            tested: list[float | None] = [None] * len(layers)
            if drawn.effects is not None:
                own = part.numerators, part.denominators
                tested = assess_effects(*own, seed=seed, comparisons=comparisons, strata=part.strata).p.tolist()
            columns: dict[str, Any] = {"condition": kind, "against": against}
            for number, (layer, p) in enumerate(zip(layers, tested, strict=True)):
                rows.append(drawn.row(BITS, metric, itemgetter((..., number)), layer=layer, p=p, **columns))
            if metric != STANDS_OUT:
                over = replace(part, numerators=part.numerators.mean(axis=0, keepdims=True))
                rows.append(Resampled.of([over], seed=seed).row(BITS, metric, first, **columns))
    for metric in {row.metric for row in rows}:
        of_metric = {at: row.p for at, row in enumerate(rows) if row.metric == metric}
        for at, adjusted in holm_by_key(of_metric).items():
            rows[at] = replace(rows[at], p_adjusted=adjusted)
    return rows


def _list_quantities(
    losses: Sequence[Loss], whole: str, bits: Mapping[int, Sequence[str]], noise: Mapping[int, Sequence[str]]
) -> Iterator[tuple[str, str | None, Part]]:
    """Yield each quantity with what it is against, and its values by layer, (layers, units)."""
    layers = sorted(bits)
    part = arms(losses, whole, [bits[layer][0] for layer in layers])
    if part is None:
        return
    yield DELTA, None, part
    if len(layers) > 1:
        share = len(layers) / (len(layers) - 1)
        yield STANDS_OUT, DELTA, replace(part, numerators=share * (part.numerators - part.numerators.mean(axis=0)))
    if not set(layers) <= set(noise):
        return
    both = arms(losses, whole, [plan for layer in layers for plan in (bits[layer][0], *noise[layer])])
    if both is not None:
        rows = np.split(both.numerators, np.cumsum([1 + len(noise[layer]) for layer in layers])[:-1])
        beyond = np.stack([own[0] - own[1:].mean(axis=0) for own in rows])
        yield EXCESS, SAME_NORM_RANDOM, replace(both, numerators=beyond)
