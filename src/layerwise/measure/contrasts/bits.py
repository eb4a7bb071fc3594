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
from functools import partial

import numpy as np

from layerwise.measure.contrasts.contrast import Part, Resampled, arms, first
from layerwise.measure.stats.statistics import Numbers, Seed, assess_effects, holm_by_key
from layerwise.plan import Plan
from layerwise.plan.quantised import quantised_layers
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
        ((layer, _),) = quantised_layers(Plan.parse(record.plan))
        plans[record.family][record.strategy].setdefault(layer, []).append(record.plan)
    whole = str(Plan.identity(depth))
    comparisons = sum(map(len, plans["bits"].values()))
    rows = list(_alone(losses, whole, plans["bits"], plans["bits_noise"], seed, comparisons))
    for metric in {row.metric for row in rows}:
        tested = {at: row.p for at, row in enumerate(rows) if row.metric == metric}
        for at, adjusted in holm_by_key(tested).items():
            rows[at] = replace(rows[at], p_adjusted=adjusted)
    return rows


_Plans = Mapping[str, Mapping[int, Sequence[str]]]


def _alone(
    losses: Sequence[Loss], whole: str, bits: _Plans, noise: _Plans, seed: Seed, comparisons: int
) -> Iterator[Score]:
    for kind, by_layer in bits.items():
        layers = sorted(by_layer)
        part = arms(losses, whole, [by_layer[layer][0] for layer in layers])
        if part is None:
            continue
        yield from _of_layers(DELTA, kind, layers, part, seed, comparisons)
        yield from _standing_out(kind, layers, part, seed, comparisons)
        drawn = noise.get(kind, {})
        if not set(layers) <= set(drawn):
            continue
        both = arms(losses, whole, [plan for layer in layers for plan in (by_layer[layer][0], *drawn[layer])])
        if both is not None:
            rows = np.split(both.numerators, np.cumsum([1 + len(drawn[layer]) for layer in layers])[:-1])
            beyond = np.stack([own[0] - own[1:].mean(axis=0) for own in rows])
            yield from _of_layers(
                EXCESS, kind, layers, replace(both, numerators=beyond), seed, comparisons, against=SAME_NORM_RANDOM
            )


def _of_layers(
    metric: str,
    kind: str,
    layers: Sequence[int],
    part: Part,
    seed: Seed,
    comparisons: int,
    against: str | None = None,
) -> Iterator[Score]:
    yield from _rows(metric, kind, layers, part, seed, comparisons, against)
    over = Resampled.of([replace(part, numerators=part.numerators.mean(axis=0, keepdims=True))], seed=seed)
    yield over.row(BITS, metric, first, condition=kind, against=against)


def _standing_out(kind: str, layers: Sequence[int], part: Part, seed: Seed, comparisons: int) -> Iterator[Score]:
    if len(layers) < 2:
        return
    share = len(layers) / (len(layers) - 1)
    apart = share * (part.numerators - part.numerators.mean(axis=0))
    yield from _rows(STANDS_OUT, kind, layers, replace(part, numerators=apart), seed, comparisons, DELTA)


def _rows(
    metric: str, kind: str, layers: Sequence[int], part: Part, seed: Seed, comparisons: int, against: str | None
) -> Iterator[Score]:
    drawn = Resampled.of([part], seed=seed)
    tested: list[float | None] = [None] * len(layers)
    if drawn.effects is not None:
        test = assess_effects(
            part.numerators, part.denominators, seed=seed, comparisons=comparisons, strata=part.strata
        )
        tested = test.p.tolist()
    for number, (layer, p) in enumerate(zip(layers, tested, strict=True)):
        of = partial(_nth, number)
        yield drawn.row(BITS, metric, of, condition=kind, layer=layer, against=against, p=p)


def _nth(number: int, effects: Numbers) -> Numbers:
    return effects[..., number]
