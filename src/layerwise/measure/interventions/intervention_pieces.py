"""The pieces that interventions fall into for several workers: runs of layers that cost about the same.

An intervention at a layer runs the layers behind it, so those at the first layers cost most. Each worker walks the
clean states itself, with the same batches as one process, so that the numbers have the same bits.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import astuple

from layerwise.measure.interventions.intervention import Intervention, ResultCache, intervention_losses
from layerwise.measure.language.evaluation_data import EvalData
from layerwise.measure.workers import Emit
from layerwise.plan import Plan
from layerwise.results.rows import Loss
from layerwise.stack import Stack


def runs_of_layers(interventions: Sequence[Intervention], depth: int, count: int) -> list[list[Intervention]]:
    """At most `count` parts of the interventions, in the order of their layers, of about equal cost; none is empty.

    >>> skips = [Intervention(layer, "skip", lambda context: lambda one: one.state) for layer in range(6)]
    >>> [[each.layer for each in part] for part in runs_of_layers(skips, 6, 2)]
    [[0, 1], [2, 3, 4, 5]]
    """
    ordered = sorted(interventions, key=lambda each: each.layer)
    total = sum(depth - each.layer for each in ordered)
    parts: list[list[Intervention]] = [[] for _ in range(count)]
    before = 0
    for each in ordered:
        cost = depth - each.layer
        parts[int((before + cost / 2) * count / total)].append(each)
        before += cost
    return [part for part in parts if part]


def lacking(interventions: Sequence[Intervention], data: EvalData, known: Collection[Loss]) -> list[Intervention]:
    """The interventions that do not have a loss on every window of `data` among the `known`."""
    cells = data.cells
    counted: dict[str, int] = {}
    for row in known:
        if (row.task, row.document, row.window) in cells:
            counted[row.plan] = counted.get(row.plan, 0) + 1
    return [each for each in interventions if counted.get(each.key, 0) < len(cells)]


def emit_losses(
    stack: Stack, interventions: Sequence[Intervention], data: EvalData, keys: Collection[str], emit: Emit
) -> None:
    """In a worker: carry out the interventions that have these keys, and say their rows as they are computed."""
    untouched = str(Plan.identity(stack.depth))

    def sink(rows: Sequence[Loss]) -> None:
        own = [astuple(row) for row in rows if row.plan != untouched]
        if own:
            emit(own)

    chosen = [each for each in interventions if each.key in keys]
    intervention_losses(stack, chosen, data, ResultCache(sink=sink))
