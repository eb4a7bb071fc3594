"""Contrasts of single layers: a core of layers that matters far more than the rest, and the cost of quantization.

The published core (layers 8 to 11 of 30) is scaled to the depth and shifted by up to 1/15 of it. The contrasts of each
such range P, with e the effect of an intervention in nats/token, are Bonferroni-corrected:
    skip_excess, average_excess   median of e over P - max(FAR * median of e elsewhere, margin)
    average_over_random           median over P of SHARE * e of the average - e of random weights of the same norm
The contrasts of a layer l quantized to a GGUF type are Holm-corrected over layers and types; L is the loss:
    delta_nll     L(l quantized) - L(original model)                    plans of the family `bits`
    excess        L(l quantized) - mean L(l with noise of that norm)    plans of the family `bits_noise`
    stands_out    delta_nll of a layer minus the mean over the other layers
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np

from layerwise.measure.contrasts.contrast import Part, Resampled, Statistic, pair_effects, take_first
from layerwise.measure.stats.grid import MIN_UNITS, arrange
from layerwise.measure.stats.statistics import Numbers, Seed, assess_effects, holm_by_key
from layerwise.plan import Plan, families
from layerwise.plan.checks import quantized_layers
from layerwise.plan.schedule.allocation import MIN_EFFECT
from layerwise.results.rows import Loss, PlanRecord, Score
from layerwise.results.vocabulary import BITS, DELTA, EXCESS, SAME_NORM_RANDOM, STANDS_OUT

CORE = "core"
FAR = 2.0
"""A layer matters "far more" if its effect exceeds this factor times the effect of a typical other layer."""

SHARE = 0.8
"""Random weights "do nearly as much" if their effect is at least this fraction of the published intervention's."""

NOMINAL_POWER = 0.85
"""Nominal power of the minimum detectable effect. The actual power is about 80 % at 24 documents (simulated)."""

PUBLISHED_DEPTH = 30
PUBLISHED_RANGE = (8, 11)
SLACK = 15
"""A core may be shifted from the published range by the depth divided by this number."""

MIN_LAYERS = 8
"""Minimum depth. With fewer layers, too few are outside the core for a median."""

Keys = Mapping[int, str]
"""Maps layers to the plan names of their losses under one intervention."""


def scale_published_layers(layers: Sequence[int], depth: int) -> tuple[int, ...]:
    """Scale layer numbers of the published model, which has 30 layers, to another depth.

    >>> scale_published_layers((8, 11), 12)
    (3, 4)
    """
    return tuple(round(layer * (depth - 1) / (PUBLISHED_DEPTH - 1)) for layer in layers)


def list_core_ranges(depth: int) -> list[range]:
    """Return the published range of layers, scaled to the depth, and ranges shifted by up to 1/15 of the depth.

    >>> list_core_ranges(30)
    [range(6, 10), range(7, 11), range(8, 12), range(9, 13), range(10, 14)]
    """
    first, last = scale_published_layers(PUBLISHED_RANGE, depth)
    width, slack = last - first + 1, round(depth / SLACK)
    starts = range(max(0, first - slack), min(depth - width, first + slack) + 1)
    return [range(start, start + width) for start in starts]


def contrast_core(
    losses: Iterable[Loss],
    baseline: str,
    skip: Keys,
    average: Keys,
    random: Keys,
    *,
    margin: float,
    seed: Seed = 0,
) -> list[Score]:
    """Return the contrasts of each range of layers (columns `layer` to `to_layer`) that may be the core.

    The published intervention replaces a layer by the average of its neighbors. Its contrasts are omitted for ranges in
    which a layer was not measured with both this average and random weights.
    """
    plans = [*skip.values(), *average.values(), *random.values()]
    grid = arrange(row for row in losses if row.plan in {baseline, *plans})
    ends = np.cumsum([len(skip), len(average)])
    ranges = list_core_ranges(len(skip))

    def above_rest(effects: Numbers, intervention: int, layers: range) -> Numbers:
        inside = [layer in layers for layer in (skip, average)[intervention]]
        return compute_excess(np.split(effects, ends, axis=-1)[intervention], inside, margin)

    def over_random(effects: Numbers, layers: range) -> Numbers:
        _, *parts = np.split(effects, ends, axis=-1)
        own, null = (
            part[..., [layer in layers for layer in keys]] for part, keys in zip(parts, (average, random), strict=True)
        )
        return np.asarray(np.median(SHARE * own - null, axis=-1))

    statistics: dict[tuple[str, range], Statistic] = {}
    for layers in ranges:
        statistics["skip_excess", layers] = partial(above_rest, intervention=0, layers=layers)
        if set(layers) <= set(average) & set(random):
            statistics["average_excess", layers] = partial(above_rest, intervention=1, layers=layers)
            statistics["average_over_random", layers] = partial(over_random, layers=layers)
    drawn, level = Resampled.from_parts([Part.from_grid(grid, baseline, plans)], seed=seed), 1 - 0.05 / len(ranges)
    return [
        drawn.row(CORE, metric, statistic, level=level, power=NOMINAL_POWER, layer=layers[0], to_layer=layers[-1])
        for (metric, layers), statistic in statistics.items()
    ]


def contrast_core_of_sweep(losses: Iterable[Loss], depth: int, *, seed: Seed = 0) -> list[Score]:
    """Return the contrasts of each range of layers that may be the core, from a sweep that skips each layer in turn.

    The list is empty for shallow models, short texts, and sweeps that lack a plan.
    """
    if depth < MIN_LAYERS:
        return []
    measured, original = list(losses), str(Plan.identity(depth))
    skip = {layer: str(member.plan) for layer, member in enumerate(families.leave_one_out(depth))}
    if not {original, *skip.values()} <= {row.plan for row in measured}:
        return []
    grid = arrange(measured)
    if grid.by_unit(grid.tokens).size < MIN_UNITS:
        return []
    return contrast_core(measured, original, skip, {}, {}, margin=MIN_EFFECT, seed=seed)


def compute_excess(effects: Numbers, inside: Sequence[bool], margin: float) -> Numbers:
    """Return the median effect inside the core minus the threshold that it must exceed: `(..., layers)` -> `(...)`.

    >>> compute_excess(np.array([9.0, 0.1, 2.0, 2.0, 0.1]), [False, False, True, True, False], 0.01).item()
    1.8
    """
    mask = np.asarray(inside)
    rest = np.median(effects[..., ~mask], axis=-1)
    return np.asarray(np.median(effects[..., mask], axis=-1) - np.maximum(FAR * rest, margin))


FAMILIES = frozenset({"bits", "bits_noise"})


def contrast_quantized_layers(
    losses: Sequence[Loss], records: Iterable[PlanRecord], depth: int, *, seed: Seed = 0
) -> list[Score]:
    """Return the contrasts of quantizing each layer to each GGUF type (`condition`), and their means over layers."""
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
            drawn = Resampled.from_parts([part], seed=seed)
            tested: list[float | None] = [None] * len(layers)
            if drawn.effects is not None:
                own = part.numerators, part.denominators
                tested = assess_effects(*own, seed=seed, comparisons=comparisons, strata=part.strata).p.tolist()
            columns: dict[str, Any] = {"condition": kind, "against": against}
            for number, (layer, p) in enumerate(zip(layers, tested, strict=True)):
                rows.append(drawn.row(BITS, metric, itemgetter((..., number)), layer=layer, p=p, **columns))
            if metric != STANDS_OUT:
                over = replace(part, numerators=part.numerators.mean(axis=0, keepdims=True))
                rows.append(Resampled.from_parts([over], seed=seed).row(BITS, metric, take_first, **columns))
    for metric in {row.metric for row in rows}:
        of_metric = {at: row.p for at, row in enumerate(rows) if row.metric == metric}
        for at, adjusted in holm_by_key(of_metric).items():
            rows[at] = replace(rows[at], p_adjusted=adjusted)
    return rows


def _list_quantities(
    losses: Sequence[Loss], whole: str, bits: Mapping[int, Sequence[str]], noise: Mapping[int, Sequence[str]]
) -> Iterator[tuple[str, str | None, Part]]:
    """Yield each quantity, what it is compared with, and its values `(layers, units)`."""
    layers = sorted(bits)
    part = pair_effects(losses, whole, [bits[layer][0] for layer in layers])
    if part is None:
        return
    yield DELTA, None, part
    if len(layers) > 1:
        share = len(layers) / (len(layers) - 1)
        yield STANDS_OUT, DELTA, replace(part, numerators=share * (part.numerators - part.numerators.mean(axis=0)))
    if not set(layers) <= set(noise):
        return
    both = pair_effects(losses, whole, [plan for layer in layers for plan in (bits[layer][0], *noise[layer])])
    if both is not None:
        rows = np.split(both.numerators, np.cumsum([1 + len(noise[layer]) for layer in layers])[:-1])
        beyond = np.stack([own[0] - own[1:].mean(axis=0) for own in rows])
        yield EXCESS, SAME_NORM_RANDOM, replace(both, numerators=beyond)
