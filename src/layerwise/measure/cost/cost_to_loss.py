"""What it costs one way of training to reach a loss that another one has, and what is saved by it.

"Half the cost" means: the loss that the reference ends with, for half of what the reference spent. So the question is
put the other way round than at equal cost (`layerwise.measure.cost.frontier`). Where a way of training was followed to
several costs, each with a loss, its losses are made monotone, since more training does not make it worse but by chance
(isotonic regression), and the cost at which they come down to the wanted loss is read off the line between neighbours,
in the logarithm of the cost. With c_s that cost and C_s what the reference spent, for each seed s,

    saving = 1 - exp(mean over s of log(c_s / C_s))

with Student's interval over seeds of the logarithms, which are paired: a seed decides the first weights and the order
of the text for both.

Points are ends of trainings of several lengths, each with its rate brought down, or looks at one training on its way,
whose rate has not come down yet; the latter are too dear a reading, never too cheap.

A loss that is not reached is *censored*, and is not left out: that it costs more than what was spent is known. With
such a seed there is an upper bound of the saving alone, and where even the cheapest point lies below the loss a lower
bound alone; with both there is nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from typing import Any, Literal

from scipy.optimize import isotonic_regression

from layerwise.errors import MeasureError
from layerwise.measure.cost.frontier import CostPoint, Points
from layerwise.measure.stats.seeds import SeedDifference, seed_difference
from layerwise.results.rows import Score
from layerwise.results.vocabulary import SAVING, SAVING_AT_LEAST, SAVING_AT_MOST

Censored = Literal["exact", "never", "sooner"]
"""Whether a cost is that of the loss, or the loss was never reached, or sooner than at the first cost."""


@dataclass(frozen=True, slots=True)
class Reached:
    """A cost at which a loss is reached; what is `censored` costs more, or less, than that."""

    cost: float
    censored: Censored = "exact"


def cost_to_loss(points: Iterable[CostPoint], loss: float, cost: str) -> Reached:
    """What it costs to come down to `loss`, read off `points` against the cost of that name.

    Raises `MeasureError` without points, and for costs that are not positive.

    >>> points = [CostPoint(loss, {"steps": steps}) for steps, loss in ((100.0, 3.0), (400.0, 2.0))]
    >>> round(cost_to_loss(points, 2.5, "steps").cost, 6), cost_to_loss(points, 1.9, "steps").censored
    (200.0, 'never')
    """
    known = sorted((point.costs[cost], point.loss) for point in points)
    if not known or known[0][0] <= 0:
        raise MeasureError(
            f"a loss is reached at a cost, and {len(known)} costs above 0 were given; give where trainings ended, or "
            "their looks at the validation text"
        )
    costs, losses = [each for each, _ in known], descending([each for _, each in known])
    if loss < losses[-1]:
        return Reached(costs[-1], "never")
    if loss > losses[0]:
        return Reached(costs[0], "sooner")
    after = bisect_left([-each for each in losses], -loss)
    if losses[after] == loss:
        return Reached(costs[after])
    share = (losses[after - 1] - loss) / (losses[after - 1] - losses[after])
    return Reached(exp(log(costs[after - 1]) + share * (log(costs[after]) - log(costs[after - 1]))))


def descending(losses: Sequence[float]) -> list[float]:
    """The descending losses nearest to these, by least squares (isotonic regression): losses that rise take their mean.

    >>> descending([5.0, 3.0, 4.0, 2.0])
    [5.0, 3.5, 3.5, 2.0]
    """
    monotone: list[float] = isotonic_regression(losses, increasing=False).x.tolist()
    return monotone


@dataclass(frozen=True, slots=True)
class CostSaving:
    """What is saved, as a share of the reference's cost, with its interval over `seeds`.

    `metric` says what it is: `SAVING`, with its interval; `SAVING_AT_MOST`, the upper end of the interval where `never`
    seeds did not reach the loss; `SAVING_AT_LEAST`, the lower one where as many as `sooner` had reached it by the first
    cost. A bound has no interval.
    """

    metric: str
    value: float
    seeds: int
    low: float | None = None
    high: float | None = None
    never: int = 0
    sooner: int = 0


def saving(arm: Mapping[int, Sequence[CostPoint]], reference: Points, cost: str) -> CostSaving | None:
    """What `arm`, by seed the points of its trainings, saves of what `reference` spent to reach its loss.

    `None` where no seed is in both, or where some seeds never reached the loss and others sooner than can be read.

    >>> points = {seed: [CostPoint(3.0, {"steps": 50.0}), CostPoint(2.0, {"steps": 80.0 + seed})] for seed in (0, 1)}
    >>> found = saving(points, {seed: CostPoint(2.0, {"steps": 100.0}) for seed in (0, 1)}, "steps")
    >>> found.metric, round(found.value, 3)
    ('saving', 0.195)
    """
    shared = sorted(set(arm) & set(reference))
    reached = {seed: cost_to_loss(arm[seed], reference[seed].loss, cost) for seed in shared}
    never, sooner = (sum(each.censored == kind for each in reached.values()) for kind in ("never", "sooner"))
    if not shared or (never and sooner):
        return None
    ratio = log_ratio(
        {seed: each.cost for seed, each in reached.items()}, {seed: reference[seed].costs[cost] for seed in shared}
    )
    low = 1 - exp(ratio.value if ratio.high is None else ratio.high)
    high = 1 - exp(ratio.value if ratio.low is None else ratio.low)
    if never:
        return CostSaving(SAVING_AT_MOST, high, len(shared), never=never)
    if sooner:
        return CostSaving(SAVING_AT_LEAST, low, len(shared), sooner=sooner)
    if ratio.low is None:
        return CostSaving(SAVING, low, len(shared))
    return CostSaving(SAVING, 1 - exp(ratio.value), len(shared), low, high)


def log_ratio(values: Mapping[int, float], others: Mapping[int, float]) -> SeedDifference:
    """The mean over seeds of `log(value / other)`, paired by seed, with Student's interval.

    >>> round(exp(log_ratio({0: 2.0, 1: 8.0}, {0: 1.0, 1: 1.0}).value), 6)
    4.0
    """
    return seed_difference(
        {seed: log(value) for seed, value in values.items()}, {seed: log(value) for seed, value in others.items()}
    )


def ratio_row(measure: str, metric: str, logs: SeedDifference, **columns: Any) -> Score:
    """exp of a mean of logarithms (`log_ratio`) and of its interval, as a row without a test."""
    low, high = (None if bound is None else exp(bound) for bound in (logs.low, logs.high))
    return Score(measure, metric, exp(logs.value), low, high, **columns)
