"""Contrasts: one function of several effects, with an interval that accounts for their dependence.

    value = f(effects)        effects[i] = sum_u numerator[i, u] / sum_u denominator[u]

Documents are resampled once for all effects (expanded percentile interval, `layerwise.measure.stats.statistics`); each
part and stratum of the text independently. `mde` is the minimum detectable contrast at 80 % power.
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

FEWEST_BEYOND = 3
"""Resamples beyond a bound without which the resamples do not reach it, and Student's interval is used as well."""

Statistic = Callable[[Numbers], Numbers]
"""From effects of shape (..., arms) to one number each, of shape (...)."""


@dataclass(frozen=True, slots=True)
class Part:
    """Effects on the same units: `numerators` (arms, units), `denominators` (units,), and the labels of `strata`."""

    numerators: Numbers
    denominators: Numbers
    documents: int
    tokens: int
    strata: StratumLabels | None = None

    @classmethod
    def of_grid(cls, grid: Grid, baseline: str, keys: Sequence[str]) -> Part:
        """Return the effects of `keys` against `baseline`, unit by unit; the grid's tasks are strata."""
        changes = grid.nll[[grid.plans.index(key) for key in keys]] - grid.nll[grid.plans.index(baseline)]
        tokens = grid.by_unit(grid.tokens)
        return cls(grid.by_unit(changes), tokens, grid.documents(), int(grid.tokens.sum()), Strata.label_grid(grid))

    @property
    def units(self) -> int:
        return int(self.denominators.size if self.strata is None else np.unique_counts(self.strata).counts.min())

    @property
    def effects(self) -> Numbers:
        return np.asarray(self.numerators.sum(axis=1) / self.denominators.sum())

    def of(self, indices: Iterable[int]) -> Part:
        return replace(self, numerators=self.numerators[list(indices)])

    def on(self, units: Sequence[int] | NDArray[np.intp]) -> Part:
        """The effects on some of the units; of the documents as many are counted as there are units, at most."""
        chosen = np.sort(np.asarray(units, dtype=np.intp))
        denominators = self.denominators[chosen]
        share = denominators.sum() / self.denominators.sum()
        return Part(
            self.numerators[:, chosen],
            denominators,
            min(self.documents, chosen.size),
            round(share * self.tokens),
            None if self.strata is None else self.strata[chosen],
        )


def arms(losses: Iterable[Loss], baseline: str, keys: Sequence[str]) -> Part | None:
    """Return the effects of `keys` against `baseline` in nats/token, by document.

    Uses the windows on which all of them were measured; `None` without any.

    >>> rows = [Loss(plan, "a", "d", 0, nll, 10, 0) for plan, nll in (("0 1", 20.0), ("1=skip", 25.0))]
    >>> arms(rows, "0 1", ["1=skip"]).numerators.tolist()
    [[5.0]]
    """
    rows_of: dict[str, dict[Cell, Loss]] = {key: {} for key in (baseline, *keys)}
    for row in losses:
        if row.plan in rows_of:
            rows_of[row.plan][row.task, row.document, row.window] = row
    shared = set.intersection(*(set(cells) for cells in rows_of.values()))
    if not shared:
        return None
    grid = arrange(row for cells in rows_of.values() for cell, row in cells.items() if cell in shared)
    return Part.of_grid(grid, baseline, keys)


@dataclass(frozen=True, slots=True, eq=False)
class Resampled:
    """The effects of arms, `value` (arms,), and those of every resample of their units, `effects` (resamples, arms).

    `units` are those of the smallest stratum; below 8 nothing is resampled and there are no intervals. `strata` has the
    units, arms and resampled changes (resamples, arms) of each stratum, which expand the interval after Satterthwaite.
    `redrawn` says that draws of plans have Student's error, of which the tails do not count for the standard error.

    >>> part = Part(np.array([[2.0] * 8, [1.0] * 8]), np.ones(8), documents=8, tokens=8)
    >>> Resampled.of([part], seed=0).row("claim", "less", lambda effects: effects[..., 0] - effects[..., 1]).value
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
    def of(cls, parts: Sequence[Part], *, seed: Seed, resamples: int = RESAMPLES) -> Resampled:
        """Resample the effects of all parts, one after the other.

        Raises `MeasureError` for numerators that are not finite and denominators that are not positive.
        """
        units = min(part.units for part in parts)
        drawn, strata = [], []
        for number, part in enumerate(parts if units >= MIN_UNITS else ()):
            own = (*seeds(seed), number)
            each = list(resample_strata(part.numerators, part.denominators, resamples, own, part.strata))
            start = sum(len(before.numerators) for before in parts[:number])
            arms = slice(start, start + len(part.numerators))
            drawn.append(np.asarray(sum(stratum.drawn for stratum in each)))
            strata += [(stratum.units, arms, stratum.drawn - stratum.value) for stratum in each]
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
        reach = student_quantile(0.5 + level / 2, freedom) * error if levels[0] * len(drawn) < FEWEST_BEYOND else 0.0
        return SampleEstimate(value, min(low, value - reach), max(high, value + reach), error, freedom)

    def _expansion(self, statistic: Statistic) -> tuple[float, float]:
        freedom, shortfall = self.units - 1.0, self.units / (self.units - 1)
        if self.strata:
            alone = [
                statistic(self._changed(arms, changes)).var() * units / (units - 1)
                for units, arms, changes in self.strata
            ]
            each = stratified_freedom(np.array(alone)[:, None], [units for units, _, _ in self.strata])
            freedom, shortfall = (number.item() for number in each)
        return freedom, shortfall

    def _changed(self, arms: slice, changes: Numbers) -> Numbers:
        effects = np.tile(self.value, (len(changes), 1))
        effects[:, arms] += changes
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
        """The `statistic` as a row about `claim`, its mde at `power`; `columns` say which layers or change it is of."""
        about = {"claim": claim, "documents": self.documents, "tokens": self.tokens, **columns}
        own = self.estimate(statistic, level)
        if own is None:
            return Score(CONTRAST, metric, float(statistic(self.value)), **about)
        return Score(CONTRAST, metric, own.value, own.low, own.high, mde=detectable(own, power), **about)

    def rows(self, claim: str, statistics: Mapping[str, Statistic], **settings: Any) -> list[Score]:
        return [self.row(claim, metric, statistic, **settings) for metric, statistic in statistics.items()]


@dataclass(frozen=True, slots=True)
class ArmEffects:
    """Effects of arms relative to the original model, by the keys of their losses, and the seed that resamples them.

    `part` gives the effects of `keys` in their order; `None` if no window has all of their losses.
    """

    keys: tuple[str, ...]
    part: Callable[[Sequence[str]], Part | None]
    seed: Seed
    resamples: int = RESAMPLES

    @classmethod
    def of(cls, losses: Sequence[Loss], baseline: str, *, seed: Seed) -> ArmEffects:
        return cls(tuple(dict.fromkeys(row.plan for row in losses)), partial(arms, losses, baseline), seed)

    def resampled(self, part: Part, indices: Iterable[int]) -> Resampled:
        return Resampled.of([part.of(indices)], seed=self.seed, resamples=self.resamples)


def detectable(estimate: SampleEstimate[float], power: float = POWER) -> float:
    """Return the contrast that an interval like this one distinguishes from zero with `power`.

    The longer arm of the interval plus t[power] standard errors, as effects may be skewed. A rule that needs n such
    findings at once has 80 % power where each has 1 - 0.2 / n.
    """
    longer = max(estimate.value - estimate.low, estimate.high - estimate.value)
    return longer + student_quantile(power, estimate.freedom) * estimate.error


def first(effects: Numbers) -> Numbers:
    return effects[..., 0]


def mean_of_drawn(effects: Numbers, chance: np.random.Generator, count: int) -> Numbers:
    """The mean over draws, (resamples, ..., draws) -> (resamples, ...), of `count` that each resample draws again."""
    again = chance.integers(0, effects.shape[-1], size=(len(effects), *(1 for _ in effects.shape[2:]), count))
    return np.asarray(np.take_along_axis(effects, again, axis=-1).mean(axis=-1))


def seeds(seed: Seed) -> tuple[int, ...]:
    return tuple(seed) if isinstance(seed, Sequence) else (seed,)


def renewed(stored: Sequence[Score], rows: Sequence[Score], claims: Collection[str]) -> list[Score]:
    others = (row for row in stored if row.claim not in claims)
    # What does not apply stands before what does.
    return sorted([*others, *rows], key=lambda row: [(cell is not None, cell or 0) for cell in row.key])
