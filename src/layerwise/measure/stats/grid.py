"""Losses as arrays for paired comparisons: every plan on the same windows, each once, on the same tokens.

`arrange` refuses anything else; `complete` keeps what all plans of an unfinished run have in common. The *units* of
a `Grid` may be resampled independently: documents as a rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NoReturn

import numpy as np
from numpy.typing import NDArray

from layerwise.errors import MeasureError
from layerwise.measure.stats.statistics import Numbers
from layerwise.results.rows import Loss
from layerwise.results.vocabulary import FEWEST_UNITS, resampling_unit

__all__ = ["FEWEST_UNITS", "WHOLE", "Cell", "Grid", "Piece", "arrange", "complete", "resampling_unit"]

Cell = tuple[str, str, int]

# A piece of text: task, document, and the window of it; or `WHOLE` for the whole document.
Piece = tuple[str, str, int]
WHOLE = -1


@dataclass(frozen=True, slots=True)
class Grid:
    """Losses of every plan on every cell (task, document, window), both sorted.

    `nll` and `hits` have shape (plans, cells), `tokens` (cells,).
    """

    plans: tuple[str, ...]
    cells: tuple[Cell, ...]
    nll: Numbers
    hits: Numbers
    tokens: Numbers

    def tasks(self) -> tuple[str, ...]:
        return tuple(sorted({task for task, _, _ in self.cells}))

    def of_task(self, task: str) -> Grid:
        return self.part([cell[0] == task for cell in self.cells])

    def part(self, chosen: Sequence[bool] | NDArray[np.bool_]) -> Grid:
        mask = np.asarray(chosen, dtype=bool)
        cells = tuple(cell for cell, mine in zip(self.cells, mask, strict=True) if mine)
        return Grid(self.plans, cells, self.nll[:, mask], self.hits[:, mask], self.tokens[mask])

    def by_unit(self, values: Numbers) -> Numbers:
        return np.asarray(np.add.reduceat(values, self._starts(), axis=-1))

    def documents(self) -> int:
        return len({(task, document) for task, document, _ in self.cells})

    def unit(self) -> Literal["document", "window"]:
        return resampling_unit(self.documents())

    def _starts(self) -> NDArray[np.intp]:
        if self.unit() == "window":
            return np.arange(len(self.cells))
        owners = [(task, document) for task, document, _ in self.cells]
        return np.array([index for index, owner in enumerate(owners) if index == 0 or owners[index - 1] != owner])


def arrange(losses: Iterable[Loss]) -> Grid:
    """Arrange losses; raise `MeasureError` unless every plan has every window once, equal tokens and finite losses."""
    rows = list(losses)
    if not rows:
        raise MeasureError("There are no losses to compare. Measure at least two plans on one text first.")
    plans = tuple(sorted({row.plan for row in rows}))
    cells = tuple(sorted({(row.task, row.document, row.window) for row in rows}))
    shape = (len(plans), len(cells))
    row_of = {plan: index for index, plan in enumerate(plans)}
    column_of = {cell: index for index, cell in enumerate(cells)}
    at = np.array([row_of[row.plan] * len(cells) + column_of[row.task, row.document, row.window] for row in rows])
    counts = np.bincount(at, minlength=len(plans) * len(cells)).reshape(shape)
    for plan, cell in np.argwhere(counts != 1)[:1]:
        _refuse_pair(plans[plan], cells[cell], f"{counts[plan, cell]} times instead of once")
    nll, hits, tokens = np.empty((3, *shape))
    nll.flat[at] = [row.nll for row in rows]
    hits.flat[at] = [row.hits for row in rows]
    tokens.flat[at] = [row.tokens for row in rows]
    for plan, cell in np.argwhere(tokens != tokens[0])[:1]:
        _refuse_pair(plans[plan], cells[cell], f"on {tokens[plan, cell]:.0f} tokens instead of {tokens[0, cell]:.0f}")
    for plan, cell in np.argwhere(~np.isfinite(nll))[:1]:
        _refuse_pair(plans[plan], cells[cell], f"at a loss of {nll[plan, cell]} nats")
    return Grid(plans, cells, nll, hits, tokens[0])


def complete(losses: Iterable[Loss]) -> list[Loss]:
    rows = list(losses)
    plans = len({row.plan for row in rows})
    measured: dict[Cell, set[str]] = {}
    for row in rows:
        measured.setdefault((row.task, row.document, row.window), set()).add(row.plan)
    return [row for row in rows if len(measured[row.task, row.document, row.window]) == plans]


def _refuse_pair(plan: str, cell: Cell, count: str) -> NoReturn:
    task, document, window = cell
    raise MeasureError(
        f"Plans are compared on the same windows, but plan {plan!r} was measured {count} on window {window} of "
        f"document {document!r} (task {task!r}). Finish the run, or keep the shared windows with complete()."
    )
