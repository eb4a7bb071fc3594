"""Strata: a text of several tasks is a fixed mix, and an estimate from part of it has to keep that mix.

Documents of a book and one-word answers differ by a hundredfold in length and in what a layer is worth to them. A few
documents drawn from all of them may miss a task altogether, and an interval from those is confidently wrong. So effects
are estimated task by task and put together with the tasks' shares of all tokens:

    effect = sum_h w_h * effect_h            se^2 = sum_h w_h^2 * se_h^2

with Student's quantile at Satterthwaite's degrees of freedom (Cochran 1977, section 5.4). Tasks with too few documents
for an interval of their own are taken together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtr, stdtrit

from layerwise.measure.stats.grid import FEWEST_UNITS, WHOLE, Grid, Piece
from layerwise.measure.stats.statistics import Numbers, StratumLabels, ratio, standard_error

REST = "the rest"


@dataclass(frozen=True, slots=True)
class Strata:
    """Which stratum each task belongs to, and the share of all tokens that each stratum holds."""

    of_task: Mapping[str, str]
    weight: Mapping[str, float]

    @classmethod
    def of(cls, lengths: Mapping[Piece, int]) -> Strata:
        """The strata of pieces of text with their scored tokens: tasks with enough pieces for two halves, and the rest.

        >>> Strata.of({("a", str(n), -1): 3 for n in range(16)} | {("b", "0", -1): 3}).of_task
        {'a': 'the rest', 'b': 'the rest'}
        """
        counts: dict[str, int] = {}
        for task, _, _ in lengths:
            counts[task] = counts.get(task, 0) + 1
        large = {task for task, count in counts.items() if count >= 2 * FEWEST_UNITS}
        small = sum(count for task, count in counts.items() if task not in large)
        if 0 < small < 2 * FEWEST_UNITS:
            large = set()
        of_task = {task: task if task in large else REST for task in sorted(counts)}
        total = sum(lengths.values())
        weight = dict.fromkeys(dict.fromkeys(of_task.values()), 0.0)
        for (task, _, _), tokens in lengths.items():
            weight[of_task[task]] += tokens / total
        return cls(of_task, weight)

    @classmethod
    def labels(cls, grid: Grid) -> StratumLabels:
        """The stratum of each unit of a grid that holds the whole text, in the order of `Grid.by_unit`."""
        return cls.labels_of(unit_pieces(grid))

    @classmethod
    def labels_of(cls, units: Mapping[Piece, int]) -> StratumLabels:
        """The stratum of each of these units, which are given with their tokens."""
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
    """The units of a grid, in the order of `Grid.by_unit`, with their tokens."""
    whole = grid.unit() == "document"
    tokens = grid.by_unit(grid.tokens).tolist()
    names = dict.fromkeys((task, document, WHOLE if whole else window) for task, document, window in grid.cells)
    return {name: round(own) for name, own in zip(names, tokens, strict=True)}


@dataclass(frozen=True, slots=True)
class Effect:
    """An effect in nats per token with its interval, its standard error and the degrees of freedom behind it."""

    value: float
    low: float
    high: float
    error: float
    freedom: float

    def p(self) -> float:
        """The two-sided p-value of Student's test against no effect."""
        if self.error == 0:
            return 1.0 if self.value == 0 else 0.0
        return float(2 * stdtr(self.freedom, -abs(self.value) / self.error))


@dataclass(frozen=True, slots=True)
class StratumPart:
    """What one stratum adds to the effects of several plans, weight included: values and variances, shape (plans,)."""

    name: str
    units: int
    value: Numbers
    variance: Numbers


def stratum_parts(grid: Grid, baseline: str, plans: Sequence[str], strata: Strata) -> list[StratumPart]:
    """What each stratum adds to the effect of each plan against the baseline, and to its variance.

    The grid may hold part of the text; its strata are weighted as in the whole. Strata it has nothing of are left out
    of the mix.
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
        variance = np.square(weight * standard_error(deltas, tokens))
        parts.append(StratumPart(name, tokens.size, weight * ratio(deltas, tokens), variance))
    return parts


def stratified(grid: Grid, baseline: str, plans: Sequence[str], strata: Strata, level: float) -> list[Effect]:
    """The effect of each plan against the baseline with its Student interval at `level`, in the order given.

    Parts of the text are weighted as `stratum_parts` says.
    """
    return combined(stratum_parts(grid, baseline, plans, strata), level)


def combined(parts: Sequence[StratumPart], level: float) -> list[Effect]:
    """The sum over strata as effects, with their Student intervals at `level`."""
    values = np.sum([part.value for part in parts], axis=0)
    variances = np.sum([part.variance for part in parts], axis=0)
    squares = np.sum([np.square(part.variance) / (part.units - 1) for part in parts], axis=0)
    freedom = np.divide(np.square(variances), squares, out=np.full(values.shape, 1e6), where=squares > 0)
    reach = stdtrit(freedom, 0.5 + level / 2) * np.sqrt(variances)
    columns = (values, values - reach, values + reach, np.sqrt(variances), freedom)
    return [Effect(*(float(column[index]) for column in columns)) for index in range(values.size)]
