"""What was done to a model, as effects on the same windows: the part of a contrast that losses give."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from layerwise.measure.contrasts.contrast import Part
from layerwise.measure.stats.grid import Cell, Grid, arrange
from layerwise.measure.stats.strata import Strata
from layerwise.results.rows import Loss


def arms(losses: Iterable[Loss], baseline: str, keys: Sequence[str]) -> Part | None:
    """The effects of `keys`, in that order, against `baseline`: nats per token, over documents.

    Only windows on which all of them were measured count; `None` where there is no such window.

    >>> rows = [Loss(plan, "a", "d", 0, nll, 10, 0) for plan, nll in (("0 1", 20.0), ("1=skip", 25.0))]
    >>> arms(rows, "0 1", ["1=skip"]).numerators.tolist()
    [[5.0]]
    """
    wanted = dict.fromkeys((baseline, *keys))
    rows_of: dict[str, dict[Cell, Loss]] = {key: {} for key in wanted}
    for row in losses:
        if row.plan in wanted:
            rows_of[row.plan][row.task, row.document, row.window] = row
    shared = set.intersection(*(set(cells) for cells in rows_of.values()))
    if not shared:
        return None
    grid = arrange(row for cells in rows_of.values() for cell, row in cells.items() if cell in shared)
    return part_of(grid, baseline, keys)


def part_of(grid: Grid, baseline: str, keys: Sequence[str]) -> Part:
    """The effects of `keys`, in that order, against `baseline`, unit by unit of a grid that holds all of them.

    Its tasks are strata (`layerwise.measure.stats.strata`).
    """
    changes = grid.nll[[grid.plans.index(key) for key in keys]] - grid.nll[grid.plans.index(baseline)]
    tokens = grid.by_unit(grid.tokens)
    return Part(grid.by_unit(changes), tokens, grid.documents(), int(grid.tokens.sum()), Strata.labels(grid))
