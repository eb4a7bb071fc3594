"""Compute contrasts: a function of several effects, with an interval that accounts for the dependence of the effects.

    value = f(effects)        effects[i] = sum_u numerator[i, u] / sum_u denominator[u]

Documents are resampled jointly for all effects of a `Part`, but independently for each part and each stratum of its
text. Intervals are expanded percentile intervals (`layerwise.measure.stats.statistics`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layerwise.measure.stats.estimate import POWER, SampleEstimate, student_quantile
from layerwise.measure.stats.grid import MIN_UNITS, Cell, Grid, Strata, arrange
from layerwise.measure.stats.statistics import (
    Numbers,
    Seed,
    StratumLabels,
    expanded_levels,
    resample_strata,
    stratified_freedom,
)
from layerwise.results.rows import Loss, Score
from layerwise.results.vocabulary import CONTRAST as CONTRAST

RESAMPLES = 2_000

MIN_BEYOND = 3
"""If fewer resamples are beyond a bound, the interval is widened to include a Student t interval."""

Statistic = Callable[[Numbers], Numbers]
"""Maps effects `(..., plans)` to numbers `(...)`."""


@dataclass(frozen=True, slots=True)
class Part:
    """Effects on the same documents or windows (units): `numerators` `(plans, units)`, `denominators` `(units,)`."""

    numerators: Numbers
    denominators: Numbers
    documents: int
    tokens: int
    strata: StratumLabels | None = None

    @classmethod
    def from_grid(cls, grid: Grid, baseline: str, keys: Sequence[str]) -> Part:
        """Return the effects of the plans `keys` relative to `baseline` by document or window. Strata are tasks."""
        changes = grid.nll[[grid.plans.index(key) for key in keys]] - grid.nll[grid.plans.index(baseline)]
        tokens = grid.by_unit(grid.tokens)
        return cls(grid.by_unit(changes), tokens, grid.documents(), int(grid.tokens.sum()), Strata.label_grid(grid))

    @property
    def units(self) -> int:
        return int(self.denominators.size if self.strata is None else np.unique_counts(self.strata).counts.min())

    @property
    def effects(self) -> Numbers:
        return np.asarray(self.numerators.sum(axis=1) / self.denominators.sum())

    def select(self, indices: Iterable[int]) -> Part:
        return replace(self, numerators=self.numerators[list(indices)])

    def select_units(self, units: Sequence[int] | NDArray[np.intp]) -> Part:
        selected = np.sort(np.asarray(units, dtype=np.intp))
        denominators = self.denominators[selected]
        share = denominators.sum() / self.denominators.sum()
        return Part(
            self.numerators[:, selected],
            denominators,
            min(self.documents, selected.size),
            round(share * self.tokens),
            None if self.strata is None else self.strata[selected],
        )


def pair_effects(losses: Iterable[Loss], baseline: str, keys: Sequence[str]) -> Part | None:
    """Return the effects of the plans `keys` relative to `baseline` in nats/token, for each document.

    Only windows that all of these plans have losses for are used. Returns None if there are none.

    >>> rows = [Loss(plan, "a", "d", 0, nll, 10, 0) for plan, nll in (("0 1", 20.0), ("1=skip", 25.0))]
    >>> pair_effects(rows, "0 1", ["1=skip"]).numerators.tolist()
    [[5.0]]
    """
    losses_by_plan: dict[str, dict[Cell, Loss]] = {key: {} for key in (baseline, *keys)}
    for row in losses:
        if row.plan in losses_by_plan:
            losses_by_plan[row.plan][row.task, row.document, row.window] = row
    shared = set.intersection(*(set(cells) for cells in losses_by_plan.values()))
    if not shared:
        return None
    grid = arrange(row for cells in losses_by_plan.values() for cell, row in cells.items() if cell in shared)
    return Part.from_grid(grid, baseline, keys)


@dataclass(frozen=True, slots=True, eq=False)
class Resampled:
    """The effects of plans on a text, and on resamples of its documents or windows (units).

    Args:
        value: Effects on the text, `(plans,)`.
        effects: Effects on the resamples, `(resamples, plans)`. None if there are fewer than 8 units.
        units: Number of units of the smallest stratum. For fewer than 8, nothing is resampled and there is no interval.
        strata: For each stratum, its number of units, its plans, and how resampling changed their effects, `(resamples,
            plans)`. The degrees of freedom of the interval are computed from these (Satterthwaite).
        redrawn: Whether resamples also draw plans at random. Contrasts of resamples are then clipped to their interval
            before the standard error is computed.

    >>> part = Part(np.array([[2.0] * 8, [1.0] * 8]), np.ones(8), documents=8, tokens=8)
    >>> drawn = Resampled.from_parts([part], seed=0)
    >>> drawn.row("claim", "less", lambda effects: effects[..., 0] - effects[..., 1]).value
    1.0
    """

    value: Numbers
    effects: Numbers | None
    units: int
    documents: int
    tokens: int | None
    strata: Sequence[tuple[int, slice, Numbers]] = ()
    redrawn: bool = False

    @classmethod
    def from_parts(cls, parts: Sequence[Part], *, seed: Seed, resamples: int = RESAMPLES) -> Resampled:
        """Resample the documents or windows of each part independently, and return the effects of all parts."""
        units = min(part.units for part in parts)
        drawn, strata = [], []
        for number, part in enumerate(parts if units >= MIN_UNITS else ()):
            own = (*convert_to_seeds(seed), number)
            each = list(resample_strata(part.numerators, part.denominators, resamples, own, part.strata))
            start = sum(len(before.numerators) for before in parts[:number])
            conditions = slice(start, start + len(part.numerators))
            drawn.append(np.asarray(sum(stratum.drawn for stratum in each)))
            strata += [(stratum.units, conditions, stratum.drawn - stratum.value) for stratum in each]
        documents, tokens = (sum(getattr(part, name) for part in parts) for name in ("documents", "tokens"))
        return cls(
            np.concatenate([part.effects for part in parts]),
            np.concatenate(drawn, axis=-1) if drawn else None,
            units,
            documents,
            tokens,
            strata if len(strata) > 1 else (),
        )

    def estimate(self, statistic: Statistic, level: float = 0.95) -> SampleEstimate[float] | None:
        if self.effects is None:
            return None
        value, drawn = float(statistic(self.value)), np.asarray(statistic(self.effects), dtype=np.float64)
        freedom, shortfall = self._expansion(statistic)
        levels = expanded_levels(level, freedom, shortfall)
        low, high = (float(bound) for bound in np.quantile(drawn, levels))
        drawn = np.clip(drawn, low, high) if self.redrawn else drawn
        error = float(drawn.std(ddof=1) * np.sqrt(shortfall))
        reach = student_quantile(0.5 + level / 2, freedom) * error if levels[0] * len(drawn) < MIN_BEYOND else 0.0
        return SampleEstimate(value, min(low, value - reach), max(high, value + reach), error, freedom)

    def _expansion(self, statistic: Statistic) -> tuple[float, float]:
        freedom, shortfall = self.units - 1.0, self.units / (self.units - 1)
        if self.strata:
            alone = [
                statistic(self._changed(conditions, changes)).var() * units / (units - 1)
                for units, conditions, changes in self.strata
            ]
            each = stratified_freedom(np.array(alone)[:, None], [units for units, _, _ in self.strata])
            freedom, shortfall = (number.item() for number in each)
        return freedom, shortfall

    def _changed(self, conditions: slice, changes: Numbers) -> Numbers:
        effects = np.tile(self.value, (len(changes), 1))
        effects[:, conditions] += changes
        return effects

    def row(
        self,
        claim: str,
        metric: str,
        statistic: Statistic,
        *,
        level: float = 0.95,
        power: float = POWER,
        **columns: Any,
    ) -> Score:
        """Return a row about `claim`: the `statistic`, its interval, and the effect detectable with this `power`."""
        about = {"claim": claim, "documents": self.documents, "tokens": self.tokens, **columns}
        own = self.estimate(statistic, level)
        if own is None:
            return Score(CONTRAST, metric, float(statistic(self.value)), **about)
        return Score(CONTRAST, metric, own.value, own.low, own.high, mde=detect_contrast(own, power), **about)

    def rows(self, claim: str, statistics: Mapping[str, Statistic], **settings: Any) -> list[Score]:
        return [self.row(claim, metric, statistic, **settings) for metric, statistic in statistics.items()]


@dataclass(frozen=True, slots=True)
class PlanEffects:
    """Effects of the plans `keys` relative to the original model.

    `part` returns the effects of the given keys in that order, or None if no window has losses of all of them.
    """

    keys: tuple[str, ...]
    part: Callable[[Sequence[str]], Part | None]
    seed: Seed
    resamples: int = RESAMPLES

    @classmethod
    def from_losses(cls, losses: Sequence[Loss], baseline: str, *, seed: Seed) -> PlanEffects:
        return cls(tuple(dict.fromkeys(row.plan for row in losses)), partial(pair_effects, losses, baseline), seed)

    def resample(self, part: Part, indices: Iterable[int]) -> Resampled:
        return Resampled.from_parts([part.select(indices)], seed=self.seed, resamples=self.resamples)


def detect_contrast(estimate: SampleEstimate[float], power: float = POWER) -> float:
    """Return the smallest contrast that an interval like that of `estimate` separates from zero with this `power`.

    It is the longer half of the interval plus t[power] standard errors, because effects may be skewed. A conclusion
    that needs n findings at once has 80 % power if each of them has the power 1 - 0.2 / n.
    """
    longer = max(estimate.value - estimate.low, estimate.high - estimate.value)
    return longer + student_quantile(power, estimate.freedom) * estimate.error


def take_first(effects: Numbers) -> Numbers:
    return effects[..., 0]


def average_redrawn(effects: Numbers, chance: np.random.Generator, count: int) -> Numbers:
    """Average `count` random entries of the last axis, drawn separately for every resample (the first axis)."""
    redrawn = chance.integers(0, effects.shape[-1], size=(len(effects), *(1 for _ in effects.shape[2:]), count))
    return np.asarray(np.take_along_axis(effects, redrawn, axis=-1).mean(axis=-1))


def convert_to_seeds(seed: Seed) -> tuple[int, ...]:
    return tuple(seed) if isinstance(seed, Sequence) else (seed,)


def replace_claims(stored: Sequence[Score], rows: Sequence[Score], claims: Collection[str]) -> list[Score]:
    others = (row for row in stored if row.claim not in claims)
    # Empty columns come first.
    return sorted([*others, *rows], key=lambda row: [(cell is not None, cell or 0) for cell in row.key])
