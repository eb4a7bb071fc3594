"""What strategies cost on windows of the depth, resampled together: the stuff that contrasts of plans are made of.

A *curve* is a strategy of a family ("painters", "reverse"), and its cost at a window of M layers is the loss of its
plan minus that of the model as trained, in nats per token; of a strategy with several draws the mean over them. All
plans are resampled with the same documents, task by task where a text has several (`layerwise.measure.stats.strata`),
and the draws of a random order are resampled too: what is said is said of random orders, not of these ten.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from layerwise.measure.contrasts.contrast import RESAMPLES, Contrast, Part, Statistic, contrasts
from layerwise.measure.stats.grid import Grid
from layerwise.measure.stats.statistics import Numbers, Seed
from layerwise.measure.stats.strata import Strata
from layerwise.results.rows import PlanRecord

Key = TypeVar("Key")
Curve = tuple[str, str]
"""A family and one of its strategies."""

Costs = Callable[[Curve, Sequence[int]], Numbers]
"""From a curve and some sizes of window to what it costs there, nats per token, of shape (..., windows)."""


@dataclass(frozen=True, slots=True)
class Strategies:
    """The losses of a sweep by curve and window: build it with `Strategies.of`.

    `parts` holds what every plan costs above the baseline, one part a stratum, `shares` the strata's shares of the
    tokens (summing to 1), `rows` the plans of each curve and window, one a draw.
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

    def contrasts(
        self, statistics: Mapping[Key, Callable[[Costs], Numbers]], *, level: float = 0.95
    ) -> dict[Key, Contrast]:
        """Every one of `statistics` of the costs, with its interval over documents and draws; none for none."""
        if not statistics:
            return {}
        of_effects = [self._of_effects(statistic) for statistic in statistics.values()]
        results = contrasts(self.parts, of_effects, seed=self.seed, level=level, resamples=self.resamples)
        return dict(zip(statistics, results, strict=True))

    def _of_effects(self, statistic: Callable[[Costs], Numbers]) -> Statistic:
        """The statistic as a function of the effects of all plans in all strata, (..., strata * plans)."""

        def of_effects(effects: Numbers) -> Numbers:
            chance = np.random.default_rng(self.seed)
            by_stratum = effects.reshape(*effects.shape[:-1], len(self.parts), -1)
            mixed = np.einsum("h,...hp->...p", self.shares, by_stratum)

            def costs(curve: Curve, windows: Sequence[int]) -> Numbers:
                return np.stack([_mean(mixed, self.rows[curve][size], chance) for size in windows], axis=-1)

            return statistic(costs)

        return of_effects


def _strata(grid: Grid, baseline: Numbers) -> tuple[tuple[Part, ...], Numbers]:
    """What every plan costs above the baseline, (plans, units) for each stratum, and the strata's shares of the tokens.

    The difference is taken window by window before anything is summed, which keeps small effects exact.
    """
    changes = grid.nll - baseline
    lengths: dict[tuple[str, str, int], int] = defaultdict(int)
    for (task, document, window), tokens in zip(grid.cells, grid.tokens, strict=True):
        lengths[task, document, window if grid.unit() == "window" else -1] += int(tokens)
    strata = Strata.of(lengths)
    owners = np.array([strata.of_task[task] for task, _, _ in grid.cells])
    parts = []
    for name in strata.weight:
        part = grid.part(owners == name)
        units = part.by_unit(part.tokens)
        parts.append(Part(part.by_unit(changes[:, owners == name]), units, part.documents(), int(part.tokens.sum())))
    return tuple(parts), np.array(list(strata.weight.values()))


def _mean(costs: Numbers, draws: NDArray[np.intp], chance: np.random.Generator) -> Numbers:
    """The mean over the plans `draws` of costs (..., plans); in a resample, over draws that are drawn again.

    One less is drawn than there are, which makes the variance of the mean the unbiased one.
    """
    if costs.ndim == 1 or len(draws) == 1:
        return np.asarray(costs[..., draws].mean(axis=-1))
    resamples = len(costs)
    again = draws[chance.integers(0, len(draws), size=(resamples, len(draws) - 1))]
    return np.asarray(costs[np.arange(resamples)[:, None], again].mean(axis=1))
