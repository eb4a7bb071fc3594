"""The front: the plans that lose less than every plan that costs as little."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from layerwise.plan import Plan


@dataclass(frozen=True, slots=True)
class FrontPoint:
    """A plan of the front, its price and its loss in nats per token."""

    plan: Plan
    price: float
    loss: float


def front(losses: Mapping[Plan, float], price: Callable[[Plan], float]) -> list[FrontPoint]:
    """The plans of which no other is both as cheap and as good, the cheapest first.

    >>> plans = {Plan.parse(text): loss for text, loss in [("0-2", 1.0), ("0 1", 1.5), ("1 2", 1.2), ("0", 1.4)]}
    >>> [str(point.plan) for point in front(plans, lambda plan: len(plan.steps()))]
    ['0', '1 2', '0-2']
    """
    points: list[FrontPoint] = []
    for plan, loss in sorted(losses.items(), key=lambda item: (price(item[0]), item[1], str(item[0]))):
        if not points or loss < points[-1].loss:
            points.append(FrontPoint(plan, price(plan), loss))
    return points


def thinned(points: list[FrontPoint], most: int) -> list[FrontPoint]:
    """At most so many of the points, evenly spaced, both ends among them.

    >>> points = [FrontPoint(Plan.of([0]), float(n), 0.0) for n in range(9)]
    >>> [point.price for point in thinned(points, 3)]
    [0.0, 4.0, 8.0]
    """
    if len(points) <= most:
        return points
    return [points[round(index * (len(points) - 1) / (most - 1))] for index in range(most)]
