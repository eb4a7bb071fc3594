"""The frontier: what the plain training reaches at a cost, and how far from it another way of training ends.

"Cheaper" and "better" are one question, answered at equal cost. A training that was stopped early says nothing
of a shorter one, because its learning rate has not come down yet; so the reference is trained several times, to several
lengths, each with its rate brought down to zero, and its loss at any cost between is read off a line through them,

    loss(c) = loss_i + (loss_k - loss_i) * (log c - log c_i) / (log c_k - log c_i)        c_i <= c <= c_k neighbours

one line for each seed. An arm ends at one point: its own cost and its own loss. The difference is taken within a seed,
because the seed decides the first weights and the order of the text for both, and its interval is Student's over seeds
(`layerwise.measure.stats.seeds`); the p of one cost are corrected over the arms that have it (Holm).
Nothing is read beyond the ends of the line, except by `SLACK`: a budget is met to within a step, not exactly.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log

import numpy as np

from layerwise.errors import MeasureError
from layerwise.measure.stats.seeds import SeedDifference, seed_difference
from layerwise.measure.stats.statistics import holm_by_key
from layerwise.results.rows import Score
from layerwise.results.vocabulary import AT, DIFFERENCE, GROWTH

COSTS = ("tokens", "flops", "seconds")
"""On which terms trainings are compared: tokens read, floating-point operations spent, seconds taken."""

SLACK = 0.01
"""How far beyond its ends, as a share of the cost there, the line of a frontier is carried on."""

EQUAL: Mapping[str, float] = {"tokens": 0.01, "flops": 0.01, "seconds": 0.05}
"""By how much of itself a cost may differ between two trainings that are said to be equal in it; time is measured."""


@dataclass(frozen=True, slots=True)
class CostPoint:
    """Where one training ended: its held-out loss in nats per token, and what it cost, by the names in `COSTS`."""

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
        """Whether the loss at `cost` can be read off."""
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
    """The mean over seeds of `arm`'s loss less the reference's at the same cost; `None` where that cannot be read.

    `reference` has, for each seed, its trainings of every length. A seed whose frontier does not reach the arm's cost
    leaves the comparison undone: the seeds that remain would be a selection.
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
    """Every arm against a reference of one length, at the costs that came out equal (`EQUAL`) with every seed.

    The rows are those of `frontier_rows`; what is not equal is not compared.
    """
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
            GROWTH, DIFFERENCE, each.value, each.low, each.high, each.p, p_adjusted=adjusted.get(arm), mde=each.mde,
            arm=arm, against=name, condition=cost,
        )
        for arm, each in differences.items()
    ]  # fmt: skip


def _at(arm: str, points: Points, name: str, cost: str) -> Score:
    spent = float(np.mean([point.costs[cost] for point in points.values()]))
    return Score(GROWTH, AT, spent, arm=arm, against=name, condition=cost)


def _are_equal(points: Points, reference: Points, cost: str) -> bool:
    """Whether two arms have seeds in common, and spent the same with each of them."""
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
