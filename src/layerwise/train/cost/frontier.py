"""The frontier: what the plain training reaches at a cost, and how far from it another training ends.

    loss(c) = loss_i + (loss_k - loss_i) * (log c - log c_i) / (log c_k - log c_i)     c_i <= c <= c_k neighbors
    saving  = 1 - exp(mean over seeds s of log(c_s / C_s))     cost to reach the reference's loss, over its cost

The reference is trained to several lengths, each with its rate decayed to its end; there is one line for each seed.
Differences are taken within a seed, with Student's interval over seeds, and corrected over arms (Holm). Nothing is read
beyond the ends of the line except by `SLACK`. A loss that is never reached is censored and gives a bound.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import exp, log
from typing import Any, Literal

import numpy as np
from scipy.optimize import isotonic_regression

from layerwise.errors import MeasureError
from layerwise.measure.stats.seeds import SeedDifference, seed_difference
from layerwise.measure.stats.statistics import holm_by_key
from layerwise.results.rows import Score
from layerwise.results.vocabulary import AT, DIFFERENCE, GROWTH, SAVING, SAVING_AT_LEAST, SAVING_AT_MOST

COSTS = ("flops", "seconds")
"""The costs at which trainings are compared: floating-point operations, and seconds of training steps."""

SLACK = 0.01
"""How far beyond its ends, as a share of the cost there, the line of a frontier is carried on."""

EQUAL: Mapping[str, float] = {"tokens": 0.01, "flops": 0.01, "seconds": 0.05}
"""The relative difference up to which two trainings count as equal in a cost; time is measured."""


@dataclass(frozen=True, slots=True)
class CostPoint:
    """Where one training ended: its held-out loss in nats per token, its costs (`COSTS`), and the `tokens` it read."""

    loss: float
    costs: Mapping[str, float]


Points = Mapping[int, CostPoint]
"""The trainings of one arm, by seed."""


@dataclass(frozen=True, slots=True)
class Frontier:
    """The loss of one seed's reference trainings against one cost, by ascending cost.

    Raises `MeasureError` for fewer than two costs, and for costs that are not positive.

    >>> line = Frontier((100.0, 400.0), (3.0, 2.0))
    >>> round(line.at(200.0), 6)
    2.5
    """

    costs: tuple[float, ...]
    losses: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.costs) < 2 or self.costs[0] <= 0 or any(one >= other for one, other in pairwise(self.costs)):
            raise MeasureError(
                f"a frontier goes through trainings of two or more different costs above 0; found {self.costs}: train "
                "the reference to more lengths"
            )

    @classmethod
    def of(cls, points: Iterable[CostPoint], cost: str) -> Frontier:
        """The frontier through `points` against the cost of that name; of two with one cost the first counts."""
        known: dict[float, float] = {}
        for point in points:
            known.setdefault(point.costs[cost], point.loss)
        ordered = sorted(known)
        return cls(tuple(ordered), tuple(known[at] for at in ordered))

    def reaches(self, cost: float) -> bool:
        return self.costs[0] * (1 - SLACK) <= cost <= self.costs[-1] * (1 + SLACK)

    def at(self, cost: float) -> float:
        """The reference's loss at `cost`, in nats. Raises `MeasureError` beyond the ends."""
        if not self.reaches(cost):
            raise MeasureError(
                f"the reference was trained at costs from {self.costs[0]:g} to {self.costs[-1]:g}, and its loss at "
                f"{cost:g} would be a guess: train it to that length"
            )
        upper = min(max(1, bisect_left(self.costs, cost)), len(self.costs) - 1)
        low, high = self.costs[upper - 1], self.costs[upper]
        share = (log(cost) - log(low)) / (log(high) - log(low))
        return self.losses[upper - 1] + share * (self.losses[upper] - self.losses[upper - 1])


def against(arm: Points, reference: Mapping[int, Sequence[CostPoint]], cost: str) -> SeedDifference | None:
    """Return the mean over seeds of `arm`'s loss minus the reference's at the same cost.

    `reference` has each seed's trainings of every length. `None` if any seed's frontier does not reach the arm's cost.
    """
    shared = sorted(set(arm) & set(reference))
    lines = {seed: Frontier.of(reference[seed], cost) for seed in shared}
    if not shared or not all(line.reaches(arm[seed].costs[cost]) for seed, line in lines.items()):
        return None
    own = {seed: arm[seed].loss for seed in shared}
    return seed_difference(own, {seed: line.at(arm[seed].costs[cost]) for seed, line in lines.items()})


def frontier_rows(
    arms: Mapping[str, Points], reference: Mapping[int, Sequence[CostPoint]], name: str
) -> tuple[list[Score], list[str]]:
    """Every arm against the reference called `name`, at every cost, and a sentence for what could not be compared.

    Rows of measure `growth`, the cost as condition: `difference`, in nats, below 0 where the arm is better, and `at`,
    the mean over seeds of what the arm itself spent.
    """
    rows: list[Score] = []
    notes: list[str] = []
    for cost in COSTS:
        differences = {arm: against(points, reference, cost) for arm, points in arms.items()}
        rows += difference_rows({arm: each for arm, each in differences.items() if each is not None}, name, cost)
        rows += [_at(arm, points, name, cost) for arm, points in arms.items()]
        notes += [_unread(arm, name, cost) for arm, each in differences.items() if each is None]
    return rows, notes


def equal_rows(arms: Mapping[str, Points], reference: Points, name: str) -> list[Score]:
    rows: list[Score] = []
    for cost in COSTS:
        equal = {arm: points for arm, points in arms.items() if _are_equal(points, reference, cost)}
        rows += difference_rows(
            {arm: seed_difference(_losses(points), _losses(reference)) for arm, points in equal.items()}, name, cost
        )
        rows += [_at(arm, points, name, cost) for arm, points in equal.items()]
    return rows


def difference_rows(differences: Mapping[str, SeedDifference], name: str, cost: str) -> list[Score]:
    """Differences from `name` at one cost as rows; their p corrected together."""
    adjusted = holm_by_key({arm: each.p for arm, each in differences.items()})
    return [
        Score(
            GROWTH,
            DIFFERENCE,
            each.value,
            each.low,
            each.high,
            each.p,
            p_adjusted=adjusted.get(arm),
            mde=each.mde,
            arm=arm,
            against=name,
            condition=cost,
        )
        for arm, each in differences.items()
    ]


def _at(arm: str, points: Points, name: str, cost: str) -> Score:
    spent = float(np.mean([point.costs[cost] for point in points.values()]))
    return Score(GROWTH, AT, spent, arm=arm, against=name, condition=cost)


def _are_equal(points: Points, reference: Points, cost: str) -> bool:
    shared = set(points) & set(reference)
    spent = [(points[seed].costs[cost], reference[seed].costs[cost]) for seed in shared]
    return bool(shared) and all(abs(own - other) <= EQUAL[cost] * other for own, other in spent)


def _losses(points: Points) -> dict[int, float]:
    return {seed: point.loss for seed, point in points.items()}


def _unread(arm: str, name: str, cost: str) -> str:
    return (
        f"{arm} is not compared with {name} at equal {cost}: what it spent lies beyond the lengths that {name} was "
        "trained to, and a loss there would be a guess"
    )


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
    """Saving as a share of the reference's cost, with its interval over `seeds`.

    `metric` is `SAVING`, or a bound without interval: `SAVING_AT_MOST`, the upper end if `never` seeds missed the loss,
    `SAVING_AT_LEAST`, the lower end if `sooner` seeds had reached it by the first cost.
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
    low, high = (None if bound is None else exp(bound) for bound in (logs.low, logs.high))
    return Score(measure, metric, exp(logs.value), low, high, **columns)
