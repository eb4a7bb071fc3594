"""Compute the costs of strategies on windows of layers, with joint resamples.

A *curve* is a strategy of a family. Its cost for a window is its loss minus that of the original model, in nats/token,
averaged over random orders. Each resample draws documents within each task (see `layerwise.measure.stats.grid`), and
random orders. Windows for which a plan has a higher loss than a unigram model are not compared.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layerwise.measure.contrasts.contrast import RESAMPLES, Part, Resampled
from layerwise.measure.stats.grid import Grid, Strata, unit_pieces
from layerwise.measure.stats.statistics import Numbers, Seed
from layerwise.results.rows import PlanRecord, Score

MAX_LISTED = 3
"""Up to this number of layers, random orders are a large share of all orders, which narrows their interval."""

Curve = tuple[str, str]

Costs = Callable[[Curve, Sequence[int]], Numbers]
"""Returns the costs `(..., windows)` of a curve for some window sizes, in nats/token."""

Statistic = Callable[[Costs], Numbers]
"""Computes a number for each resample from costs."""


def compute_mean_cost(curve: Curve, windows: Sequence[int]) -> Statistic:
    return lambda costs: np.asarray(costs(curve, windows).mean(axis=-1))


def compute_relative_difference(first: Numbers, second: Numbers) -> Numbers:
    """Return the difference of two costs divided by the mean of their magnitudes, or 0 if both are 0.

    >>> float(compute_relative_difference(np.array(1.5), np.array(0.5)))
    1.0
    """
    return divide_by_mean_size(first - second, first, second)


def divide_by_mean_size(value: Numbers, first: Numbers, second: Numbers) -> Numbers:
    """Divide a number by the mean of the magnitudes of two costs, or return 0 if both are 0."""
    size = (np.abs(first) + np.abs(second)) / 2
    return np.divide(value, size, out=np.zeros_like(size), where=size > 0)


@dataclass(frozen=True, eq=False)
class Strategies:
    """The losses of a sweep by curve and window. `Strategies.from_grid` makes them.

    Args:
        parts: Cost of every plan in each stratum of documents.
        shares: Share of the tokens in each stratum.
        rows: Rows (in `parts`) of the plans of each curve, by window size. Random orders have several plans.
        ceiling: Windows with a higher mean cost are not compared.
    """

    parts: tuple[Part, ...]
    shares: Numbers
    rows: Mapping[Curve, Mapping[int, NDArray[np.intp]]]
    seed: Seed
    resamples: int = RESAMPLES
    ceiling: float = np.inf

    @classmethod
    def from_grid(
        cls,
        grid: Grid,
        records: Iterable[PlanRecord],
        baseline: str | None,
        *,
        seed: Seed,
        resamples: int = RESAMPLES,
        unigram: float | None = None,
    ) -> Strategies:
        """Return the curves of `records` on `grid`, except for windows of one layer and plans without losses.

        Costs are differences from the plan `baseline`. If it is None, they are the values of `grid`. If `unigram` is
        given (the loss of a unigram model in nats/token), windows for which a plan has a higher loss are not compared.
        """
        row_of = {plan: row for row, plan in enumerate(grid.plans)}
        rows_by_curve: dict[Curve, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        for record in records:
            if record.plan in row_of and record.affected > 1:
                rows_by_curve[record.family, record.strategy][record.affected].append(row_of[record.plan])
        rows = {
            curve: {affected: np.array(rows) for affected, rows in windows.items()}
            for curve, windows in rows_by_curve.items()
        }
        original = np.zeros(len(grid.cells)) if baseline is None else grid.nll[row_of[baseline]]
        parts, shares = _split_strata(grid, original)
        ceiling = np.inf if unigram is None else unigram - float(original.sum() / grid.tokens.sum())
        return cls(parts, shares, rows, seed, resamples, ceiling)

    def windows(self, *curves: Curve, best: bool = False) -> tuple[int, ...]:
        """Return the sizes of windows for which all curves (if `best`, at least one) cost at most `ceiling`."""
        return tuple(size for size, is_compared in self.list_compared(*curves, best=best).items() if is_compared)

    def list_compared(self, *curves: Curve, best: bool = False) -> dict[int, bool]:
        sizes = [set(self.rows.get(curve, {})) for curve in curves]
        costs = self.costs()
        return {
            size: (any if best else all)(float(costs(curve, [size])[0]) <= self.ceiling for curve in curves)
            for size in (sorted(set.intersection(*sizes)) if sizes else ())
        }

    def costs(self) -> Costs:
        return self._costs(np.concatenate([part.effects for part in self.parts]))

    def row(self, claim: str, metric: str, statistic: Statistic, **settings: Any) -> Score:
        costs, draws = self.costs(), list[int]()

        def count_draws(curve: Curve, windows: Sequence[int]) -> Numbers:
            draws.extend(len(self.rows[curve][size]) for size in windows)
            return costs(curve, windows)

        statistic(count_draws)
        resampled = replace(self._resampled, redrawn=max(draws, default=1) > 1)
        return resampled.row(claim, metric, lambda effects: statistic(self._costs(effects)), **settings)

    def row_by_halves(
        self, claim: str, metric: str, statistic: Callable[[Costs, Costs], Numbers], **settings: Any
    ) -> Score:
        """Return the row of a statistic that selects on one half of the documents and is computed on the other half.

        Both halves are resampled.
        """
        halves, resampled = self._halved

        def of_both(effects: Numbers) -> Numbers:
            middle = effects.shape[-1] // 2
            return statistic(halves[0]._costs(effects[..., :middle]), halves[1]._costs(effects[..., middle:]))

        return resampled.row(claim, metric, of_both, **settings)

    @property
    def has_halves(self) -> bool:
        return min(part.units for part in self.parts) > 1

    def split_halves(self) -> tuple[Strategies, Strategies]:
        chance = np.random.default_rng(self.seed)
        orders = [chance.permutation(part.units) for part in self.parts]
        first, second = (
            tuple(part.select_units(order[side::2]) for part, order in zip(self.parts, orders, strict=True))
            for side in (0, 1)
        )
        return replace(self, parts=first), replace(self, parts=second)

    def _orders(self, curve: Curve, size: int) -> float:
        family, strategy = curve
        orders = math.factorial(size) - (size in self.rows.get((family, "reverse"), {})) if size <= MAX_LISTED else 0
        return orders if strategy == "random" and len(self.rows[curve][size]) <= orders else math.inf

    @cached_property
    def _resampled(self) -> Resampled:
        return Resampled.from_parts(self.parts, seed=self.seed, resamples=self.resamples)

    @cached_property
    def _halved(self) -> tuple[tuple[Strategies, Strategies], Resampled]:
        first, second = self.split_halves()
        both = Resampled.from_parts((*first.parts, *second.parts), seed=self.seed, resamples=self.resamples)
        # Windows of one document can be in both halves.
        return (first, second), replace(both, documents=sum(part.documents for part in self.parts))

    def _costs(self, effects: Numbers) -> Costs:
        chance = np.random.default_rng(self.seed)
        by_stratum = effects.reshape(*effects.shape[:-1], len(self.parts), -1)
        mixed = np.einsum("h,...hp->...p", self.shares, by_stratum)

        def costs(curve: Curve, windows: Sequence[int]) -> Numbers:
            drawn = [
                average_draws(mixed[..., self.rows[curve][size]], chance, self._orders(curve, size)) for size in windows
            ]
            return np.stack(drawn, axis=-1)

        return costs


def average_draws(draws: Numbers, chance: np.random.Generator, population: float = math.inf) -> Numbers:
    """Average over draws `(resamples, ..., draws)`, and add the sampling error of k draws out of N to each resample.

    The error has Student's t distribution with k - 1 degrees of freedom. Resampling few draws would miss its tails.

        mean + sqrt(1 - k / N) sum_i g[i] (x[i] - mean) / sqrt(k c)        g normal, c chi-squared of k - 1
    """
    count, mean = draws.shape[-1], draws.mean(axis=-1)
    if count == 1 or draws.ndim == 1:
        return np.asarray(mean)
    shape = (len(draws), *(1 for _ in draws.shape[2:]))
    weights = chance.standard_normal((*shape, count)) / np.sqrt(count * chance.chisquare(count - 1, shape))[..., None]
    weights *= math.sqrt(max(0.0, 1 - count / population))
    return np.asarray(mean + (weights * (draws - mean[..., None])).sum(axis=-1))


def _split_strata(grid: Grid, baseline: Numbers) -> tuple[tuple[Part, ...], Numbers]:
    changes = grid.nll - baseline
    strata = Strata.from_lengths(unit_pieces(grid))
    owners = np.array([strata.of_task[task] for task, _, _ in grid.cells])
    parts = []
    for name in strata.weight:
        part = grid.part(owners == name)
        units = part.by_unit(part.tokens)
        parts.append(Part(part.by_unit(changes[:, owners == name]), units, part.documents(), int(part.tokens.sum())))
    return tuple(parts), np.array(list(strata.weight.values()))
