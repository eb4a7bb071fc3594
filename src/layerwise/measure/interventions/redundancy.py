"""Measure sets of layers that are skipped together, with random sets of the same size as the null.

Choose the set on other text (`layerwise.measure.language.evaluation_data.split`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence

import numpy as np

from layerwise.errors import MeasureError
from layerwise.measure.interventions.intervention import ResultCache
from layerwise.measure.interventions.sweep import CostEstimate, CostMeter, sweep
from layerwise.measure.language.evaluation_data import EvalData
from layerwise.plan import Plan, edits
from layerwise.results.rows import Loss
from layerwise.stack import Stack

RANDOM_SETS = 20
"""Random sets for each chosen one: another random set falls between their least and most in 19 of 21 cases."""


def skipping(depth: int, layers: Iterable[int]) -> Plan:
    """Return the plan that skips `layers`.

    >>> str(skipping(6, (1, 3)))
    '0 2 4 5'
    """
    return edits.skip(Plan.identity(depth), *layers)


def random_sets(depth: int, size: int, *, seed: int = 0, count: int = RANDOM_SETS) -> list[tuple[int, ...]]:
    """Draw `count` distinct sets of `size` layers; return all sets where there are no more than that.

    >>> random_sets(3, 2)
    [(0, 1), (0, 2), (1, 2)]
    """
    if math.comb(depth, size) <= count:
        return list(itertools.combinations(range(depth), size))
    draw = np.random.default_rng([seed, depth, size])
    sets: dict[tuple[int, ...], None] = {}
    while len(sets) < count:
        sets.setdefault(tuple(sorted(draw.choice(depth, size=size, replace=False).tolist())))
    return list(sets)


def measure_plans(stack: Stack, data: EvalData, plans: Sequence[Plan], cache: ResultCache) -> None:
    """Compute the losses of `plans` and the identity plan that `cache` does not know; log those not finite.

    Raises `MeasureError` if the original model's loss is not finite.
    """
    windows, identity = data.cells, str(Plan.identity(stack.depth))
    wanted = {identity, *map(str, plans)}
    done: dict[tuple[str, str, int], set[str]] = {}
    for row in cache.known:
        if row.plan in wanted:
            done.setdefault((row.task, row.document, row.window), set()).add(row.plan)
    fresh: list[Loss] = []

    def sink(rows: Sequence[Loss]) -> None:
        fresh.extend(rows)
        cache.sink(rows)

    def progress(meter: CostMeter, due: CostEstimate) -> None:
        whole = due.layer_tokens + due.head_tokens
        cache.progress((meter.layer_tokens + meter.head_tokens) / whole if whole else 1.0)

    def finished(task: str, document: str, window: int) -> frozenset[str]:
        return frozenset(done.get((task, document, window), ()))

    try:
        sweep(stack, plans, data, sink=sink, finished=finished, progress=progress)
    except MeasureError as error:
        original = sum(identity in done.get(window, ()) for window in windows)
        if original + sum(row.plan == identity for row in fresh) < len(windows):
            raise
        cache.log(str(error))
