"""Which layers are kept when a model must do with fewer: four rules, since the papers do not agree on one.

    first      the first K; what early exit runs
    last       the last K
    even       K spread evenly over the depth: layer floor((i + 1/2) L / K) for i = 0..K-1 (LayerDrop recommends it)
    random     a uniform subset of K, drawn anew each time

The original order of the kept layers is ascending; a random order is a shuffle of them.
"""

from __future__ import annotations

import random

from layerwise.errors import PlanError, near_matches
from layerwise.plan.checks import check_depth, shown
from layerwise.plan.plan import Plan

RULES = ("first", "last", "even", "random")


def layer_subset(depth: int, count: int, rule: str, chance: random.Random) -> tuple[int, ...]:
    """The `count` layers of `depth` that `rule` keeps, ascending; only `random` draws from `chance`.

    >>> layer_subset(12, 6, "even", random.Random(0))
    (1, 3, 5, 7, 9, 11)
    """
    check_depth(depth)
    if type(count) is not int or not 1 <= count <= depth:
        raise PlanError(f"of {depth} layers 1 to {depth} can be kept, not {shown(count)}")
    match rule:
        case "first":
            return tuple(range(count))
        case "last":
            return tuple(range(depth - count, depth))
        case "even":
            return tuple((2 * index + 1) * depth // (2 * count) for index in range(count))
        case "random":
            return tuple(sorted(chance.sample(range(depth), count)))
    raise PlanError(f"layers are kept by a rule; {rule!r} is none: {near_matches(rule, RULES)}")


def shuffled_subset(layers: tuple[int, ...], chance: random.Random) -> Plan:
    """The plan that runs `layers` in a uniformly random order."""
    order = list(layers)
    chance.shuffle(order)
    return Plan.of(order)
