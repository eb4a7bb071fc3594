"""Measure whether a core of consecutive layers matters far more than the rest.

The published core (layers 8 to 11 of 30) is scaled to the depth and shifted by up to 1/15; for each such range P
(Bonferroni), with e the effect of an intervention in nats/token:
    skip_excess, average_excess   median of e over P - max(FAR * median of e elsewhere, margin)
    average_over_random           median over P of SHARE * e of the average - e of random weights of the same norm
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import numpy as np

from layerwise.measure.contrasts.contrast import Part, Resampled, Statistic
from layerwise.measure.stats.grid import MIN_UNITS, arrange
from layerwise.measure.stats.statistics import Numbers, Seed
from layerwise.plan import Plan, families
from layerwise.plan.schedule.allocation import MIN_EFFECT
from layerwise.results.rows import Loss, Score

CORE = "core"
FAR = 2.0
"""How many times a core layer's effect exceeds that of a typical other layer before it matters "far more"."""

SHARE = 0.8
"""The share of the published intervention's effect that random weights must reach to do nearly as much."""

REACHED = 0.85
"""Nominal power of the printed mde; about 80 % are reached at 24 documents (simulated)."""

PUBLISHED_DEPTH = 30
PUBLISHED_RANGE = (8, 11)
SLACK = 15
"""A core may be off the published range by 1/15 of the depth."""

FEWEST_LAYERS = 8
"""With fewer layers there are too few outside the core to take a median of."""

Keys = Mapping[int, str]
"""From a layer to the key of its losses under one intervention."""


def published_layers(layers: Sequence[int], depth: int) -> tuple[int, ...]:
    """The layers of a model of 30 that were published, scaled to the depth.

    >>> published_layers((8, 11), 12)
    (3, 4)
    """
    return tuple(round(layer * (depth - 1) / (PUBLISHED_DEPTH - 1)) for layer in layers)


def core_ranges(depth: int) -> list[range]:
    """Where a core is looked for: the published range, scaled, and those near it.

    >>> core_ranges(30)
    [range(6, 10), range(7, 11), range(8, 12), range(9, 13), range(10, 14)]
    """
    first, last = published_layers(PUBLISHED_RANGE, depth)
    width, slack = last - first + 1, round(depth / SLACK)
    starts = range(max(0, first - slack), min(depth - width, first + slack) + 1)
    return [range(start, start + width) for start in starts]


def core(
    losses: Iterable[Loss],
    baseline: str,
    skip: Keys,
    average: Keys,
    random: Keys,
    *,
    margin: float,
    seed: Seed = 0,
) -> list[Score]:
    """Return the rows about the core, from the first layer of a range (`layer`) to its last (`other`).

    The published intervention needs its losses and those of random weights on every layer of the range.
    """
    plans = [*skip.values(), *average.values(), *random.values()]
    grid = arrange(row for row in losses if row.plan in {baseline, *plans})
    ends = np.cumsum([len(skip), len(average)])
    ranges = core_ranges(len(skip))

    def above_rest(effects: Numbers, intervention: int, layers: range) -> Numbers:
        inside = [layer in layers for layer in (skip, average)[intervention]]
        return excess(np.split(effects, ends, axis=-1)[intervention], inside, margin)

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
    drawn, level = Resampled.of([Part.of_grid(grid, baseline, plans)], seed=seed), 1 - 0.05 / len(ranges)
    return [
        drawn.row(CORE, metric, statistic, level=level, power=REACHED, layer=layers[0], to_layer=layers[-1])
        for (metric, layers), statistic in statistics.items()
    ]


def core_of_sweep(losses: Iterable[Loss], depth: int, *, seed: Seed = 0) -> list[Score]:
    """Compute the rows about the core from a sweep that skips every layer.

    Empty for other sweeps, for fewer than `FEWEST_LAYERS` layers, and for text too short for an interval.
    """
    if depth < FEWEST_LAYERS:
        return []
    measured, original = list(losses), str(Plan.identity(depth))
    skip = {layer: str(member.plan) for layer, member in enumerate(families.leave_one_out(depth))}
    if not {original, *skip.values()} <= {row.plan for row in measured}:
        return []
    grid = arrange(measured)
    if grid.by_unit(grid.tokens).size < MIN_UNITS:
        return []
    return core(measured, original, skip, {}, {}, margin=MIN_EFFECT, seed=seed)


def excess(effects: Numbers, inside: Sequence[bool], margin: float) -> Numbers:
    """The median effect inside, less what it has to exceed: (..., layers) -> (...).

    >>> excess(np.array([9.0, 0.1, 2.0, 2.0, 0.1]), [False, False, True, True, False], 0.01).item()
    1.8
    """
    mask = np.asarray(inside)
    rest = np.median(effects[..., ~mask], axis=-1)
    return np.asarray(np.median(effects[..., mask], axis=-1) - np.maximum(FAR * rest, margin))
