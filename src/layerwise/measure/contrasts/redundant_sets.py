"""Are layers that are redundant one by one redundant together, and more so than any layers would be?

A set is chosen on one half of the text and evaluated on the other: the largest one whose single effects add up to less
than `SURVIVES` (two layers at least), by the effect of skipping. With C what dropping that set costs, and R the mean of
what random sets of as many layers cost, in nats per token,

    joint    C
    spared   R - C, what it is worth to know which layers to drop
    layers   how many layers the set has
    singles  what its layers cost one by one on the half that chose them, added up

A claim needs the first two, so their `mde` is that of 90 % power each. The sets behind R are resampled with the
documents: other sets would have been drawn.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from layerwise.measure.contrasts.arms import arms
from layerwise.measure.contrasts.contrast import CONTRAST, RESAMPLES, Part, contrast
from layerwise.measure.stats.statistics import Numbers, Seed
from layerwise.results.rows import Loss, PlanRecord, Score

CLAIM = "redundant_sets"
SURVIVES = 0.2
"""Nats per token, a fifth more perplexity: what the published model "survives" (scaling by 0.9, +19 %)."""


def chosen_size(ranking: Mapping[int, float], most: int) -> int:
    """How many layers of least effect add up to less than `SURVIVES`: at least two, at most `most`.

    >>> chosen_size({0: 3.0, 1: 0.05, 2: 0.06, 3: 0.07, 4: 0.5}, most=4)
    3
    """
    sums = list(itertools.accumulate(sorted(ranking.values())))
    return max([2, *(count for count, total in enumerate(sums[:most], start=1) if total < SURVIVES)])


def redundant_sets(
    losses: Sequence[Loss],
    baseline: str,
    records: Sequence[PlanRecord],
    ranking: Mapping[int, float],
    *,
    seed: Seed,
) -> list[Score]:
    """The rows of the module: `records` say which plan drops which set, `ranking` is that of `skip`, by layer.

    None where the sets or their losses are missing.
    """
    size = chosen_size(ranking, max((record.affected for record in records), default=0))
    plans = {
        strategy: [record.plan for record in records if (record.strategy, record.affected) == (strategy, size)]
        for strategy in ("skip", "random")
    }
    if not all(plans.values()):
        return []
    part = arms(losses, baseline, [plans["skip"][0], *plans["random"]])
    return [] if part is None else redundant_sets_rows(part, size, sum(sorted(ranking.values())[:size]), seed=seed)


def redundant_sets_rows(
    part: Part, size: int, singles: float, *, seed: Seed, resamples: int = RESAMPLES
) -> list[Score]:
    """The rows of the module from effects: of the chosen set of `size` layers, and of every random set of as many."""
    draw = np.random.default_rng([*(seed if isinstance(seed, Sequence) else (seed,)), size])

    def spared(effects: Numbers) -> Numbers:
        return _mean_of_drawn(effects[..., 1:], draw) - effects[..., 0]

    rows = [
        contrast([part], statistic, seed=seed, resamples=resamples).row(CLAIM, metric, power=1 - 0.2 / 2)
        for metric, statistic in (("joint", _joint), ("spared", spared))
    ]
    return [
        *rows,
        Score(CONTRAST, "layers", float(size), claim=CLAIM),
        Score(CONTRAST, "singles", singles, claim=CLAIM),
    ]


def _joint(effects: Numbers) -> Numbers:
    return effects[..., 0]


def _mean_of_drawn(sets: Numbers, draw: np.random.Generator) -> Numbers:
    """The mean over sets, (..., sets) -> (...); of every resample the mean of as many sets drawn with replacement."""
    if sets.ndim == 1:
        return np.asarray(sets.mean())
    count = sets.shape[-1]
    drawn = draw.integers(0, count, size=(len(sets), count))
    return np.asarray(np.take_along_axis(sets, drawn, axis=-1).mean(axis=-1))
