"""The losses of a model in which several layers hold other weights at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from layerwise.errors import MeasureError
from layerwise.measure.interventions.intervention import ResultCache, intervention_losses
from layerwise.measure.language.evaluation_data import EvalData
from layerwise.results.rows import Loss
from layerwise.stack import Stack
from layerwise.stack.weights import Weights, substituted


def joint_losses(
    stack: Stack, data: EvalData, key: str, replaced: Callable[[], Mapping[int, Weights]], cache: ResultCache
) -> list[Loss]:
    """The losses on `data`, as rows called `key`, with the layers that `replaced` gives holding its weights.

    What the cache knows is not computed again, and `replaced` is then not called. None where they are not finite, of
    which the cache's log is told.
    """
    windows = data.cells
    known = {_cell(row): row for row in cache.known if row.plan == key and _cell(row) in windows}
    if known.keys() == windows:
        return list(known.values())
    try:
        with substituted(stack, replaced()):
            rows = [replace(row, plan=key) for row in intervention_losses(stack, (), data)]
    except MeasureError:
        cache.log(f"{key} gives a loss that is not finite and is left out; --dtype float32 may help")
        return []
    cache.sink([row for row in rows if _cell(row) not in known])
    return rows


def _cell(row: Loss) -> tuple[str, str, int]:
    return (row.task, row.document, row.window)
