"""Compute the cost of strategies on windows of the depth, resampled together.

A *curve* is a strategy of a family, its cost at a window the loss minus that of the original model in nats/token, the
mean over draws. Resamples draw documents (by task, `layerwise.measure.stats.strata`) and the draws of random orders.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layerwise.measure.contrasts.contrast import RESAMPLES, Part, Resampled, mean_of_drawn
from layerwise.measure.stats.grid import Grid
from layerwise.measure.stats.statistics import Numbers, Seed
from layerwise.measure.stats.strata import Strata, unit_pieces
from layerwise.results.rows import PlanRecord, Score

Curve = tuple[str, str]
"""A family and one of its strategies."""

Costs = Callable[[Curve, Sequence[int]], Numbers]
"""From a curve and some sizes of window to what it costs there, nats per token, of shape (..., windows)."""

Statistic = Callable[[Costs], Numbers]
"""A number made of costs, one for each resample."""


def relative(first: Numbers, second: Numbers) -> Numbers:
    """Return the difference of two costs relative to the mean of their magnitudes; 0 if both are 0.

    >>> float(relative(np.array(1.5), np.array(0.5)))
    1.0
    """
    return relative_to(first - second, first, second)


def relative_to(value: Numbers, first: Numbers, second: Numbers) -> Numbers:
    """A number over the mean of the sizes of two costs; 0 where both are nothing."""
    size = (np.abs(first) + np.abs(second)) / 2
    return np.divide(value, size, out=np.zeros_like(size), where=size > 0)


@dataclass(frozen=True, eq=False)
class Strategies:
    """The losses of a sweep by curve and window: build it with `Strategies.of`.

    `parts` has every plan's cost by stratum, `shares` the strata's shares of tokens, `rows` the draws of each curve.
    """

    parts: tuple[Part, ...]
    shares: Numbers
    rows: Mapping[Curve, Mapping[int, NDArray[np.intp]]]
    seed: Seed
    resamples: int = RESAMPLES

    @classmethod
    def of(
        cls, grid: Grid, records: Iterable[PlanRecord], baseline: str, *, seed: Seed, resamples: int = RESAMPLES
    ) -> Strategies:
        """The curves of `records` on `grid`; plans that it has no losses of are left out, and so are single layers."""
        row_of = {plan: row for row, plan in enumerate(grid.plans)}
        rows_by_curve: dict[Curve, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        for record in records:
            if record.plan in row_of and record.affected > 1:
                rows_by_curve[record.family, record.strategy][record.affected].append(row_of[record.plan])
        rows = {
            curve: {affected: np.array(rows) for affected, rows in windows.items()}
            for curve, windows in rows_by_curve.items()
        }
        parts, shares = _strata(grid, grid.nll[row_of[baseline]])
        return cls(parts, shares, rows, seed, resamples)

    def windows(self, *curves: Curve) -> tuple[int, ...]:
        """The sizes of window, of two layers and more, at which all of `curves` were measured; ascending."""
        measured = [set(self.rows.get(curve, {})) for curve in curves]
        return tuple(sorted(set.intersection(*measured))) if measured else ()

    def row(self, claim: str, metric: str, statistic: Statistic, **settings: Any) -> Score:
        """A number made of the costs as a row about `claim`, with its interval over documents and draws."""
        return self._resampled.row(claim, metric, lambda effects: statistic(self._costs(effects)), **settings)

    def row_by_halves(
        self, claim: str, metric: str, statistic: Callable[[Costs, Costs], Numbers], **settings: Any
    ) -> Score:
        """Return a number chosen on the costs of one half and reported on the other (`halves`); both are resampled."""
        halves, resampled = self._halved

        def of_both(effects: Numbers) -> Numbers:
            middle = effects.shape[-1] // 2
            return statistic(halves[0]._costs(effects[..., :middle]), halves[1]._costs(effects[..., middle:]))

        return resampled.row(claim, metric, of_both, **settings)

    @property
    def has_halves(self) -> bool:
        """Whether every stratum has a unit for each half."""
        return min(part.units for part in self.parts) > 1

    def halves(self) -> tuple[Strategies, Strategies]:
        """Split the units of every stratum at random: one half to choose by, the other to report on."""
        chance = np.random.default_rng(self.seed)
        orders = [chance.permutation(part.units) for part in self.parts]
        first, second = (
            tuple(part.on(order[side::2]) for part, order in zip(self.parts, orders, strict=True)) for side in (0, 1)
        )
        return replace(self, parts=first), replace(self, parts=second)

    @cached_property
    def _resampled(self) -> Resampled:
        return replace(Resampled.of(self.parts, seed=self.seed, resamples=self.resamples), draws=self._draws)

    @property
    def _draws(self) -> int:
        """The draws of the strategy that has the fewest of several; small windows do not have as many orders."""
        counts = [max(map(len, by_size.values())) for by_size in self.rows.values()]
        return min((count for count in counts if count > 1), default=1)

    @cached_property
    def _halved(self) -> tuple[tuple[Strategies, Strategies], Resampled]:
        first, second = self.halves()
        both = Resampled.of((*first.parts, *second.parts), seed=self.seed, resamples=self.resamples)
        # Windows of one document may be in both halves, and it is one document all the same.
        return (first, second), replace(both, documents=sum(part.documents for part in self.parts), draws=self._draws)

    def _costs(self, effects: Numbers) -> Costs:
        chance = np.random.default_rng(self.seed)
        by_stratum = effects.reshape(*effects.shape[:-1], len(self.parts), -1)
        mixed = np.einsum("h,...hp->...p", self.shares, by_stratum)

        def costs(curve: Curve, windows: Sequence[int]) -> Numbers:
            return np.stack([mean_over(mixed[..., self.rows[curve][size]], chance) for size in windows], axis=-1)

        return costs


def mean_over(draws: Numbers, chance: np.random.Generator) -> Numbers:
    """Average over draws, (..., draws); resamples draw one less than there are, for an unbiased variance."""
    count = draws.shape[-1]
    if count == 1:
        return np.asarray(draws[..., 0])
    return np.asarray(draws.mean(axis=-1)) if draws.ndim == 1 else mean_of_drawn(draws, chance, count - 1)


def _strata(grid: Grid, baseline: Numbers) -> tuple[tuple[Part, ...], Numbers]:
    """Return every plan's cost, (plans, units) by stratum, and the strata's shares of tokens."""
    changes = grid.nll - baseline
    strata = Strata.of(unit_pieces(grid))
    owners = np.array([strata.of_task[task] for task, _, _ in grid.cells])
    parts = []
    for name in strata.weight:
        part = grid.part(owners == name)
        units = part.by_unit(part.tokens)
        parts.append(Part(part.by_unit(changes[:, owners == name]), units, part.documents(), int(part.tokens.sum())))
    return tuple(parts), np.array(list(strata.weight.values()))
