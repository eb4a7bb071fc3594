"""Arrange losses as arrays for paired comparisons, and stratify them by task.

A task is the label of a group of documents, and a stratum is a large task or all small tasks together. An estimate from
part of a text weights each stratum h by its fraction w_h of the tokens of the full text (Cochran 1977, 5.4):

    effect = sum_h w_h * effect_h            se^2 = sum_h w_h^2 * se_h^2
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NoReturn

import numpy as np
from numpy.typing import NDArray

from layerwise.errors import MeasureError
from layerwise.measure.stats.estimate import SampleEstimate, satterthwaite
from layerwise.measure.stats.statistics import Numbers, StratumLabels, skewed_interval
from layerwise.results.rows import Loss
from layerwise.results.vocabulary import MIN_UNITS, resampling_unit

__all__ = ["MIN_UNITS", "WHOLE", "Cell", "Grid", "Piece", "arrange", "complete", "resampling_unit"]

Cell = tuple[str, str, int]

Piece = tuple[str, str, int]
"""A document or window of a text: its task, its document, and its window index (`WHOLE` for a document)."""

WHOLE = -1


@dataclass(frozen=True, slots=True)
class Grid:
    """Losses of every plan on every cell (task, document, window); plans and cells are sorted.

    `nll` and `hits` have the shape (plans, cells), `tokens` has the shape (cells,). The units that are resampled are
    documents, or windows if there are fewer than 8 documents.
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

    def part(self, selected: Sequence[bool] | NDArray[np.bool_]) -> Grid:
        mask = np.asarray(selected, dtype=bool)
        cells = tuple(cell for cell, is_selected in zip(self.cells, mask, strict=True) if is_selected)
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
    """Arrange losses as arrays of shape (plans, windows).

    Raises:
        MeasureError: If a plan lacks a window or has it twice, if plans differ in scored tokens, or if a loss is not
            finite.
    """
    rows = list(losses)
    if not rows:
        raise MeasureError("There are no losses to compare. Evaluate at least two plans on the same text first.")
    plans = tuple(sorted({row.plan for row in rows}))
    cells = tuple(sorted({(row.task, row.document, row.window) for row in rows}))
    shape = (len(plans), len(cells))
    row_of = {plan: index for index, plan in enumerate(plans)}
    column_of = {cell: index for index, cell in enumerate(cells)}
    at = np.array([row_of[row.plan] * len(cells) + column_of[row.task, row.document, row.window] for row in rows])
    counts = np.bincount(at, minlength=len(plans) * len(cells)).reshape(shape)
    for plan, cell in np.argwhere(counts != 1)[:1]:
        _refuse_pair(plans[plan], cells[cell], f"{counts[plan, cell]} losses")
    nll, hits, tokens = np.empty((3, *shape))
    nll.flat[at] = [row.nll for row in rows]
    hits.flat[at] = [row.hits for row in rows]
    tokens.flat[at] = [row.tokens for row in rows]
    for plan, cell in np.argwhere(tokens != tokens[0])[:1]:
        _refuse_pair(plans[plan], cells[cell], f"{tokens[plan, cell]:.0f} tokens instead of {tokens[0, cell]:.0f}")
    for plan, cell in np.argwhere(~np.isfinite(nll))[:1]:
        _refuse_pair(plans[plan], cells[cell], f"a loss of {nll[plan, cell]} nats")
    return Grid(plans, cells, nll, hits, tokens[0])


def complete(losses: Iterable[Loss]) -> list[Loss]:
    rows = list(losses)
    plans = len({row.plan for row in rows})
    measured: dict[Cell, set[str]] = {}
    for row in rows:
        measured.setdefault((row.task, row.document, row.window), set()).add(row.plan)
    return [row for row in rows if len(measured[row.task, row.document, row.window]) == plans]


def _refuse_pair(plan: str, cell: Cell, fault: str) -> NoReturn:
    task, document, window = cell
    raise MeasureError(
        f"Every plan must have one finite loss per window over the same tokens, got {fault} of plan {plan!r} on window "
        f"{window} of document {document!r} (task {task!r}). Finish the run, or remove this window from every plan."
    )


REST = "the rest"

MIN_DOCUMENTS = 16
"""Minimum number of documents to split a text into two halves with an interval each."""


@dataclass(frozen=True, slots=True)
class Strata:
    """The stratum of each task, and the fraction of all tokens in each stratum."""

    of_task: Mapping[str, str]
    weight: Mapping[str, float]

    @classmethod
    def from_lengths(cls, lengths: Mapping[Piece, int]) -> Strata:
        """Make each task with at least 16 documents or windows (pieces) a stratum, and merge all others into `REST`.

        If `REST` has fewer than 16 pieces, the smallest of the large tasks is merged into it as well. `lengths` maps
        pieces to their numbers of scored tokens.

        >>> tasks = [("a", 16), ("b", 40), ("c", 1)]
        >>> pieces = [(task, str(number), -1) for task, count in tasks for number in range(count)]
        >>> Strata.from_lengths(dict.fromkeys(pieces, 3)).of_task
        {'a': 'the rest', 'b': 'b', 'c': 'the rest'}
        """
        counts: dict[str, int] = {}
        for task, _, _ in lengths:
            counts[task] = counts.get(task, 0) + 1
        large = {task for task, count in counts.items() if count >= 2 * MIN_UNITS}
        if 0 < sum(count for task, count in counts.items() if task not in large) < 2 * MIN_UNITS and large:
            large.remove(min(large, key=lambda task: (counts[task], task)))
        of_task = {task: task if task in large else REST for task in sorted(counts)}
        total = sum(lengths.values())
        weight = dict.fromkeys(dict.fromkeys(of_task.values()), 0.0)
        for (task, _, _), tokens in lengths.items():
            weight[of_task[task]] += tokens / total
        return cls(of_task, weight)

    @classmethod
    def label_grid(cls, grid: Grid) -> StratumLabels:
        return cls.label_pieces(unit_pieces(grid))

    @classmethod
    def label_pieces(cls, units: Mapping[Piece, int]) -> StratumLabels:
        strata = cls.from_lengths(units)
        names = list(strata.weight)
        return np.array([names.index(strata.of_task[task]) for task, _, _ in units], dtype=np.intp)

    def at_most(self, count: int) -> Strata:
        """Limit the number of strata to `count` by merging the smallest ones into `REST`.

        >>> Strata({"a": "a", "b": "b", "c": "c"}, {"a": 0.8, "b": 0.1, "c": 0.1}).at_most(2).weight
        {'a': 0.8, 'the rest': 0.2}
        """
        if len(self.weight) <= count:
            return self
        heaviest = sorted((name for name in self.weight if name != REST), key=lambda name: -self.weight[name])
        names = {name: name if name in heaviest[: count - 1] else REST for name in self.weight}
        weight = dict.fromkeys(dict.fromkeys(names.values()), 0.0)
        for name, share in self.weight.items():
            weight[names[name]] += share
        return Strata({task: names[name] for task, name in self.of_task.items()}, weight)


def unit_pieces(grid: Grid) -> dict[Piece, int]:
    is_document = grid.unit() == "document"
    tokens = grid.by_unit(grid.tokens).tolist()
    names = dict.fromkeys((task, document, WHOLE if is_document else window) for task, document, window in grid.cells)
    return {name: round(count) for name, count in zip(names, tokens, strict=True)}


def shuffle_pieces(pieces: Iterable[Piece], seed: int) -> tuple[Piece, ...]:
    """Shuffle documents or windows within each task, and interleave the tasks in proportion to their sizes."""
    tasks: dict[str, list[Piece]] = {}
    for piece in sorted(pieces):
        tasks.setdefault(piece[0], []).append(piece)
    ranked: list[tuple[float, Piece]] = []
    for task, of_task in tasks.items():
        draw = random.Random(f"{seed}/{task}")
        draw.shuffle(of_task)
        ranked += [((rank + draw.random()) / len(of_task), piece) for rank, piece in enumerate(of_task)]
    return tuple(piece for _, piece in sorted(ranked))


@dataclass(frozen=True, slots=True)
class StratumPart:
    """The weighted contribution of a stratum to the effect of each plan, in arrays of shape (plans,).

    `third` is the third cumulant, and `freedom` the degrees of freedom of the variance.
    """

    name: str
    units: int
    freedom: Numbers
    value: Numbers
    variance: Numbers
    third: Numbers


def stratum_parts(grid: Grid, baseline: str, plans: Sequence[str], strata: Strata) -> list[StratumPart]:
    """Compute the contribution of each stratum to the effects of `plans`; strata without losses are omitted."""
    origin = grid.nll[grid.plans.index(baseline)]
    changes = grid.nll[[grid.plans.index(plan) for plan in plans]] - origin
    owners = np.array([strata.of_task[task] for task, _, _ in grid.cells])
    present = {name: share for name, share in strata.weight.items() if (owners == name).any()}
    parts = []
    for name, share in present.items():
        part = grid.part(owners == name)
        tokens = part.by_unit(part.tokens)
        deltas = part.by_unit(changes[:, owners == name])
        weight = share / sum(present.values())
        effect = skewed_interval(deltas, tokens)
        variance, third = np.square(weight * effect.error), effect.skewness * (weight * effect.error) ** 3
        parts.append(StratumPart(name, tokens.size, effect.freedom, weight * effect.value, variance, third))
    return parts


def stratified_effects(
    grid: Grid, baseline: str, plans: Sequence[str], strata: Strata, level: float
) -> list[SampleEstimate[float]]:
    return combine_strata(stratum_parts(grid, baseline, plans, strata), level)


def combine_strata(parts: Sequence[StratumPart], level: float) -> list[SampleEstimate[float]]:
    values = np.sum([part.value for part in parts], axis=0)
    variances = np.sum([part.variance for part in parts], axis=0)
    squares = np.sum([np.square(part.variance) / part.freedom for part in parts], axis=0)
    thirds, errors = np.sum([part.third for part in parts], axis=0), np.sqrt(variances)
    freedom = satterthwaite(variances, squares)
    skewness = np.divide(thirds, errors**3, out=np.zeros_like(errors), where=errors > 0)
    return SampleEstimate.student(values, errors, freedom, level, skewness).each()


@dataclass
class StratifiedSample:
    """A growing sample of documents or windows (pieces): a queue for each stratum, and the number taken from it.

    `take_more` takes the next piece from the stratum where it reduces the variance most per token. For n_h pieces taken
    and variance v_h, the reduction is v_h / (n_h (n_h + 1)). Sample sizes approach Neyman's (Cochran 1977, 5.5).

    >>> lengths = {("a", str(n), -1): 2 for n in range(20)} | {("b", str(n), -1): 6 for n in range(20)}
    >>> sample = StratifiedSample.from_order(lengths, lengths, Strata.from_lengths(lengths))
    >>> len(sample.take_first(8)), sample.taken
    (8, {'b': 4, 'a': 4})
    >>> len(sample.take_more(12, {"a": 1.0, "b": 1.0})), sample.taken, sample.tokens
    (4, {'b': 4, 'a': 8}, 40)
    """

    queues: Mapping[str, list[Piece]]
    lengths: Mapping[Piece, int]
    taken: dict[str, int] = field(default_factory=dict)
    tokens: int = 0

    @classmethod
    def from_order(cls, order: Iterable[Piece], lengths: Mapping[Piece, int], strata: Strata) -> StratifiedSample:
        """Create an empty sample. Each stratum is read in `order`, and the heaviest stratum is drawn from first."""
        heaviest = sorted(strata.weight, key=lambda name: -strata.weight[name])
        queues: dict[str, list[Piece]] = {name: [] for name in heaviest}
        for piece in order:
            queues[strata.of_task[piece[0]]].append(piece)
        return cls(queues, lengths, dict.fromkeys(queues, 0))

    @property
    def documents(self) -> int:
        return sum(self.taken.values())

    @property
    def exhausted(self) -> bool:
        return not self._open()

    def share(self, name: str) -> float:
        return self.taken[name] / len(self.queues[name])

    def take_first(self, count: int) -> list[Piece]:
        added: list[Piece] = []
        while len(added) < count and (names := self._open()):
            added += [self._take(name) for name in names[: count - len(added)]]
        return added

    def take_more(self, tokens: int, variances: Mapping[str, float]) -> list[Piece]:
        """Take more pieces, with at most `tokens` tokens in total, given the variance v_h of each stratum."""
        cost = {name: sum(map(self.lengths.__getitem__, queue)) / len(queue) for name, queue in self.queues.items()}
        added: list[Piece] = []
        until = self.tokens + tokens
        while names := self._open():
            gains = {name: variances[name] / (self.taken[name] * (self.taken[name] + 1) * cost[name]) for name in names}
            name = max(names, key=gains.__getitem__)
            if self.tokens + self.lengths[self._next(name)] > until:
                break
            added.append(self._take(name))
        return added

    def _open(self) -> list[str]:
        return [name for name, queue in self.queues.items() if self.taken[name] < len(queue)]

    def _next(self, name: str) -> Piece:
        return self.queues[name][self.taken[name]]

    def _take(self, name: str) -> Piece:
        piece = self._next(name)
        self.taken[name] += 1
        self.tokens += self.lengths[piece]
        return piece
