"""The plans that a router chooses among: for each number of layers a few that are good, and good at different prompts.

All of them keep the layers before `prefix`, whose state the router reads. From the trained order layers are left out
one at a time, single layers and short runs are repeated, and neighbours change places; of the plans of one cost those
stay that are best: first the one with the greatest mean score, then each time the one whose addition raises the mean of
the best score by most.
The questions that choose candidates serve no other purpose: what is best of many on them was so by luck in part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from layerwise.measure.stats.statistics import Numbers
from layerwise.plan import Plan
from layerwise.plan.plan import Visit
from layerwise.search.moves import Move, cheaper, neighbours, stages

LEAST_SHARE = 0.5
"""No candidate has a smaller share of the model's layers."""

MOST_SHARE = 1.25
"""Nor one that repeats layers a greater one."""

MeasuredScores = Callable[[Sequence[Plan]], dict[Plan, Numbers]]
"""From plans to their scores on the questions, (questions,) each; a plan without finite scores is left out."""


def candidate_plans(
    measured: MeasuredScores, depth: int, prefix: int, moves: Sequence[Move], width: int, given: Sequence[Plan] = ()
) -> tuple[Plan, ...]:
    """The trained order, the plans `given`, and at most `width` plans of each cost; the cheapest first.

    `moves` are some of `drop`, `repeat` and `reorder`. With the last the best plans of a cost compete with those in
    which two of their neighbours change places: prompts that need the same layers may need them in other orders.
    """

    def best(plans: Iterable[Plan]) -> list[Plan]:
        scores = measured([plan for plan in dict.fromkeys(plans) if _allowed(plan, depth, prefix)])
        kept = _best(scores, width)
        if "reorder" not in moves:
            return kept
        orders = dict.fromkeys(other for plan in kept for other in neighbours(plan, ("reorder",), depth))
        new = [plan for plan in orders if plan not in scores and _allowed(plan, depth, prefix)]
        return _best({**scores, **measured(new)}, width)

    whole = Plan.identity(depth)
    kept = {whole, *given}
    if "repeat" in moves:
        kept.update(best(neighbours(whole, ("repeat",), depth)))
    if "reorder" in moves:
        kept.update(best([whole]))
    parents = [whole]
    while "drop" in moves and parents:
        parents = best(child for parent in parents for child in cheaper(parent, ("drop",)))
        kept.update(parents)
    return by_cost(kept)


def by_cost(plans: Iterable[Plan]) -> tuple[Plan, ...]:
    """The plans, each once, the cheapest first."""
    return tuple(sorted(set(plans), key=lambda plan: (plan.cost().evaluations, str(plan))))


def keeps(plan: Plan, prefix: int) -> bool:
    """Whether a plan begins with the layers 0 to `prefix` - 1, each once and whole.

    >>> keeps(Plan.parse("0-3 6-11"), 2), keeps(Plan.parse("0 2-11"), 2)
    (True, False)
    """
    return stages(plan)[:prefix] == tuple(Visit(layer) for layer in range(prefix))


def _allowed(plan: Plan, depth: int, prefix: int) -> bool:
    return keeps(plan, prefix) and LEAST_SHARE <= plan.cost().evaluations / depth <= MOST_SHARE


def _best(scores: dict[Plan, Numbers], width: int) -> list[Plan]:
    """Of the plans of each cost at most `width`: the best on the mean, then those that add most to it."""
    costs: dict[int, list[Plan]] = {}
    for plan in scores:
        costs.setdefault(plan.cost().evaluations, []).append(plan)
    kept = []
    for plans in costs.values():
        best = np.full(len(scores[plans[0]]), -np.inf)
        for _ in range(min(width, len(plans))):
            # Of plans that add equally much, the one that is better by itself.
            worth = {plan: (np.maximum(best, scores[plan]).mean(), scores[plan].mean()) for plan in plans}
            addition = max(plans, key=lambda plan: worth[plan])
            best = np.maximum(best, scores[addition])
            plans = [plan for plan in plans if plan != addition]
            kept.append(addition)
    return kept
