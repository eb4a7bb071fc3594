"""What the bits of each layer are worth: alone, beyond noise of the same size, and where all layers have few.

For a layer l at a type of GGUF, with losses L in nats per token and the families of `layerwise.plan.families`,

    delta_nll     L(l quantised) - L(as it is)                          `bits`
    excess        L(l quantised) - mean L(l with noise of that norm)    `bits_noise`: what is due to the error itself
    worth         L(all quantised) - L(all but l)                       `bits_left_out`: at the operating point

Each is a paired contrast with the interval of its own documents, and a p of sign flips over them (Holm, over the layers
at all types). Whether layers differ at all is asked of `stands_out`, a difference or worth less the mean over the other
layers: where all are alike, any is named in 5 of 100 runs at most.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from layerwise.measure.contrasts.contrast import Part, Resampled, arms, first
from layerwise.measure.stats.effects import FLIPS_PER_PLAN
from layerwise.measure.stats.statistics import Numbers, Seed, holm_by_key, sign_flips
from layerwise.plan import Plan
from layerwise.plan.quantised import quantised_layers
from layerwise.results.rows import Loss, PlanRecord, Score
from layerwise.results.vocabulary import ALL, BITS, DELTA, EXCESS, SAME_NORM_RANDOM, STANDS_OUT, WORTH

FAMILIES = frozenset({"bits", "bits_noise", "bits_left_out"})
"""The families whose losses are compared."""

FLIPS = 10_000
"""Sign flips at least; of many layers and types more, so that the smallest p survives Holm's correction."""


def bits_contrasts(losses: Sequence[Loss], records: Iterable[PlanRecord], depth: int, *, seed: Seed = 0) -> list[Score]:
    """The rows of `contrast` about bits, by type (`condition`) and layer; what was not measured has none.

    A `stands_out` is `against` the metric that it is of. A row without a layer is the mean over all layers, or, of
    `worth`, what all of them at the type cost together.
    """
    plans: dict[str, dict[str, dict[int | None, list[str]]]] = {family: defaultdict(dict) for family in FAMILIES}
    measured = {row.plan for row in losses}
    compared = [record for record in records if record.family in FAMILIES and record.plan in measured]
    for record in compared:
        layer = layer_of(record, depth)
        plans[record.family][record.strategy].setdefault(layer, []).append(record.plan)
    whole, flips = str(Plan.identity(depth)), max(FLIPS, FLIPS_PER_PLAN * len(compared))
    rows = [
        *_alone(losses, whole, plans["bits"], plans["bits_noise"], seed, flips),
        *_together(losses, whole, plans["bits_left_out"], seed, flips),
    ]
    for metric in {row.metric for row in rows}:
        tested = {at: row.p for at, row in enumerate(rows) if row.metric == metric}
        for at, adjusted in holm_by_key(tested).items():
            rows[at] = replace(rows[at], p_adjusted=adjusted)
    return rows


def layer_of(record: PlanRecord, depth: int) -> int | None:
    """The layer that a plan of one of `FAMILIES` is about; `None` for that of all layers."""
    layers = [layer for layer, _ in quantised_layers(Plan.parse(record.plan))]
    if record.family != "bits_left_out":
        return layers[0]
    return next(iter({*range(depth)} - {*layers}), None)


_Plans = Mapping[str, Mapping[int | None, Sequence[str]]]
"""By type and layer, the plans; several where there are draws. No layer: all of them."""


def _alone(losses: Sequence[Loss], whole: str, bits: _Plans, noise: _Plans, seed: Seed, flips: int) -> Iterator[Score]:
    for kind, by_layer in bits.items():
        layers = sorted(layer for layer in by_layer if layer is not None)
        part = arms(losses, whole, [by_layer[layer][0] for layer in layers])
        if part is None:
            continue
        yield from _of_layers(DELTA, kind, layers, part, seed, flips, mean=True)
        yield from _standing_out(DELTA, kind, layers, part, seed, flips)
        drawn = noise.get(kind, {})
        if not set(layers) <= set(drawn):
            continue
        both = arms(losses, whole, [plan for layer in layers for plan in (by_layer[layer][0], *drawn[layer])])
        if both is not None:
            rows = np.split(both.numerators, np.cumsum([1 + len(drawn[layer]) for layer in layers])[:-1])
            beyond = np.stack([own[0] - own[1:].mean(axis=0) for own in rows])
            yield from _of_layers(
                EXCESS, kind, layers, replace(both, numerators=beyond), seed, flips, mean=True, against=SAME_NORM_RANDOM
            )


def _together(losses: Sequence[Loss], whole: str, left_out: _Plans, seed: Seed, flips: int) -> Iterator[Score]:
    for kind, by_layer in left_out.items():
        layers = sorted(layer for layer in by_layer if layer is not None)
        if None not in by_layer or not layers:
            continue
        part = arms(losses, whole, [by_layer[layer][0] for layer in (None, *layers)])
        if part is None:
            continue
        every = Resampled.of([part.of([0])], seed=seed)
        yield every.row(BITS, WORTH, first, condition=kind, against=ALL)
        worth = replace(part, numerators=part.numerators[0] - part.numerators[1:])
        yield from _of_layers(WORTH, kind, layers, worth, seed, flips)
        yield from _standing_out(WORTH, kind, layers, worth, seed, flips)


def _of_layers(
    metric: str,
    kind: str,
    layers: Sequence[int],
    part: Part,
    seed: Seed,
    flips: int,
    *,
    mean: bool = False,
    against: str | None = None,
) -> Iterator[Score]:
    """A row for each layer; with `mean` one over all of them."""
    yield from _rows(metric, kind, layers, part, seed, flips, against)
    if mean:
        over = Resampled.of([replace(part, numerators=part.numerators.mean(axis=0, keepdims=True))], seed=seed)
        yield over.row(BITS, metric, first, condition=kind, against=against)


def _standing_out(metric: str, kind: str, layers: Sequence[int], part: Part, seed: Seed, flips: int) -> Iterator[Score]:
    """Each layer less the mean over the others."""
    if len(layers) < 2:
        return
    share = len(layers) / (len(layers) - 1)
    apart = share * (part.numerators - part.numerators.mean(axis=0))
    yield from _rows(STANDS_OUT, kind, layers, replace(part, numerators=apart), seed, flips, metric)


def _rows(
    metric: str, kind: str, layers: Sequence[int], part: Part, seed: Seed, flips: int, against: str | None
) -> Iterator[Score]:
    drawn = Resampled.of([part], seed=seed)
    tested: list[float | None] = [None] * len(layers)
    if drawn.effects is not None:
        tested = sign_flips(part.numerators, seed=seed, flips=flips, strata=part.strata).p.tolist()
    for number, (layer, p) in enumerate(zip(layers, tested, strict=True)):
        of = partial(_nth, number)
        yield drawn.row(BITS, metric, of, condition=kind, layer=layer, against=against, p=p)


def _nth(number: int, effects: Numbers) -> Numbers:
    return effects[..., number]
