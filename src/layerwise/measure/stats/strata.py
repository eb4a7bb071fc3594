"""Strata: a text of several tasks is a fixed mix, and an estimate from part of it has to keep that mix.

    effect = sum_h w_h * effect_h            se^2 = sum_h w_h^2 * se_h^2

with w_h the tasks' shares of all tokens, and Satterthwaite's degrees of freedom (Cochran 1977, 5.4). Small tasks are
merged. A `StratifiedSample` adds documents to the stratum with the largest variance reduction per token,
v_h / (n_h (n_h + 1)), which tends to Neyman's allocation (5.5), or equally if the v_h are unknown.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from layerwise.measure.stats.estimate import SampleEstimate, satterthwaite
from layerwise.measure.stats.grid import FEWEST_UNITS, WHOLE, Grid, Piece
from layerwise.measure.stats.statistics import Numbers, StratumLabels, skewed_interval

REST = "the rest"

FEWEST_DOCUMENTS = 16
"""Below this a half of the text has too few documents for an interval."""


@dataclass(frozen=True, slots=True)
class Strata:
    """Which stratum each task belongs to, and the share of all tokens that each stratum holds."""

    of_task: Mapping[str, str]
    weight: Mapping[str, float]

    @classmethod
    def of(cls, lengths: Mapping[Piece, int]) -> Strata:
        """The strata of pieces of text with their scored tokens: tasks with enough pieces for two halves, and the rest.

        If the rest is too small for that itself, the smallest of the large tasks joins it.

        >>> tasks = [("a", 16), ("b", 40), ("c", 1)]
        >>> Strata.of({(task, str(number), -1): 3 for task, count in tasks for number in range(count)}).of_task
        {'a': 'the rest', 'b': 'b', 'c': 'the rest'}
        """
        counts: dict[str, int] = {}
        for task, _, _ in lengths:
            counts[task] = counts.get(task, 0) + 1
        large = {task for task, count in counts.items() if count >= 2 * FEWEST_UNITS}
        if 0 < sum(count for task, count in counts.items() if task not in large) < 2 * FEWEST_UNITS and large:
            large.remove(min(large, key=lambda task: (counts[task], task)))
        of_task = {task: task if task in large else REST for task in sorted(counts)}
        total = sum(lengths.values())
        weight = dict.fromkeys(dict.fromkeys(of_task.values()), 0.0)
        for (task, _, _), tokens in lengths.items():
            weight[of_task[task]] += tokens / total
        return cls(of_task, weight)

    @classmethod
    def labels(cls, grid: Grid) -> StratumLabels:
        return cls.labels_of(unit_pieces(grid))

    @classmethod
    def labels_of(cls, units: Mapping[Piece, int]) -> StratumLabels:
        strata = cls.of(units)
        names = list(strata.weight)
        return np.array([names.index(strata.of_task[task]) for task, _, _ in units], dtype=np.intp)

    def at_most(self, count: int) -> Strata:
        """The same text with no more than `count` strata: the smallest are taken together with the rest.

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
    whole = grid.unit() == "document"
    tokens = grid.by_unit(grid.tokens).tolist()
    names = dict.fromkeys((task, document, WHOLE if whole else window) for task, document, window in grid.cells)
    return {name: round(own) for name, own in zip(names, tokens, strict=True)}


def shuffled(chosen: Iterable[Piece], seed: int) -> tuple[Piece, ...]:
    tasks: dict[str, list[Piece]] = {}
    for piece in sorted(chosen):
        tasks.setdefault(piece[0], []).append(piece)
    ranked: list[tuple[float, Piece]] = []
    for task, mine in tasks.items():
        draw = random.Random(f"{seed}/{task}")
        draw.shuffle(mine)
        ranked += [((rank + draw.random()) / len(mine), name) for rank, name in enumerate(mine)]
    return tuple(name for _, name in sorted(ranked))


@dataclass(frozen=True, slots=True)
class StratumPart:
    """What one stratum adds to the effects of several plans, weight included: value, variance and third cumulant.

    They and the variance's degrees of freedom are of shape (plans,).
    """

    name: str
    units: int
    freedom: Numbers
    value: Numbers
    variance: Numbers
    third: Numbers


def stratum_parts(grid: Grid, baseline: str, plans: Sequence[str], strata: Strata) -> list[StratumPart]:
    """Return what each stratum adds to the effect and variance of each plan, weighted as in the whole text.

    Strata without losses in the grid are left out of the mix.
    """
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
        own = skewed_interval(deltas, tokens)
        variance, third = np.square(weight * own.error), own.skewness * (weight * own.error) ** 3
        parts.append(StratumPart(name, tokens.size, own.freedom, weight * own.value, variance, third))
    return parts


def stratified(
    grid: Grid, baseline: str, plans: Sequence[str], strata: Strata, level: float
) -> list[SampleEstimate[float]]:
    return combined(stratum_parts(grid, baseline, plans, strata), level)


def combined(parts: Sequence[StratumPart], level: float) -> list[SampleEstimate[float]]:
    values = np.sum([part.value for part in parts], axis=0)
    variances = np.sum([part.variance for part in parts], axis=0)
    squares = np.sum([np.square(part.variance) / part.freedom for part in parts], axis=0)
    thirds, errors = np.sum([part.third for part in parts], axis=0), np.sqrt(variances)
    freedom = satterthwaite(variances, squares)
    skewness = np.divide(thirds, errors**3, out=np.zeros_like(errors), where=errors > 0)
    return SampleEstimate.student(values, errors, freedom, level, skewness).each()


@dataclass
class StratifiedSample:
    """The pieces of each stratum in the order in which they are read, and how many of them were.

    >>> lengths = {("a", str(n), -1): 2 for n in range(20)} | {("b", str(n), -1): 6 for n in range(20)}
    >>> sample = StratifiedSample.of(lengths, lengths, Strata.of(lengths))
    >>> len(sample.first(8)), sample.taken
    (8, {'b': 4, 'a': 4})
    >>> len(sample.more(12, {"a": 1.0, "b": 1.0})), sample.taken, sample.tokens
    (4, {'b': 4, 'a': 8}, 40)
    """

    queues: Mapping[str, list[Piece]]
    lengths: Mapping[Piece, int]
    taken: dict[str, int] = field(default_factory=dict)
    tokens: int = 0

    @classmethod
    def of(cls, order: Iterable[Piece], lengths: Mapping[Piece, int], strata: Strata) -> StratifiedSample:
        """Nothing read yet of pieces that are to be read in `order`; the heaviest stratum comes first."""
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

    def first(self, count: int) -> list[Piece]:
        added: list[Piece] = []
        while len(added) < count and (names := self._open()):
            added += [self._take(name) for name in names[: count - len(added)]]
        return added

    def more(self, tokens: int, variances: Mapping[str, float]) -> list[Piece]:
        """Further pieces of at most so many tokens together; `variances` are the v_h, in any unit."""
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
