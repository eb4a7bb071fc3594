"""The arms of a growth study, all with equal initial weights and data order, and what each is trained for.

`uniform` trains everything; `published` uses the founding paper's six phases; `importance` trains layers for as long as
they are important, with the controls `permuted`, `reversed` and `random`; `stacking` copies a third of the layers
upwards; `ramp` drops layers at random. All spend the operations of uniform's budget; uniform is also trained to other
lengths (`layerwise.train.cost.frontier`), `published` to `HALF_BUDGET`. Sweeps use seeds from `FIRST_SWEEP_SEED` on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import ceil, floor, sqrt
from random import Random

from layerwise.errors import TrainError, near_matches
from layerwise.plan.schedule import GrowthSchedule, ModelCost, preset, random_freezing
from layerwise.studies.train_growth.options import UNIFORM

PUBLISHED, IMPORTANCE = "published", "importance"
PERMUTED, REVERSED, RANDOM = "permuted", "reversed", "random"
STACKING, RAMP = "stacking", "ramp"

ARMS = (UNIFORM, PUBLISHED, IMPORTANCE, PERMUTED, REVERSED, RANDOM, STACKING, RAMP)

CONTROLS = (PERMUTED, REVERSED, RANDOM)
"""Made from the schedule of `importance`; without it there are none."""

PHASED = (IMPORTANCE, PUBLISHED)
"""The phased arms with a sweep of their own, the one whose rate the others take first."""


FACTORS = (0.5, 1.0, 2.0)
"""The rates that a sweep begins with, as shares of the setting."""

HALF_BUDGET = 416 / 656
"""Steps of the published half-budget training, as a share of uniform's."""

TOLERANCE = 0.01
"""How far from its budget, as a share of it, an arm may end."""

SHORTEST = 0.8
"""The least length that uniform is trained to beside its budget: an arm may take less time than it was counted for."""

DRAWS = 200
"""Orders of the layers among which the control with permuted roles is chosen."""


_GRAIN = 0.05


def known(depth: int) -> dict[str, GrowthSchedule]:
    return {arm: preset(arm, depth) for arm in (UNIFORM, PUBLISHED, STACKING, RAMP)}


def of_importance(schedule: GrowthSchedule, seed: int) -> dict[str, GrowthSchedule]:
    """The arm `importance` and its controls, drawn by `seed`; itself alone where every layer has the same role."""
    own = replace(schedule, name=IMPORTANCE)
    order = permutation(own, seed)
    if order is None:
        return {IMPORTANCE: own}
    results = {
        IMPORTANCE: own,
        PERMUTED: own.permuted(order),
        REVERSED: own.reversed(),
        RANDOM: next(each for each in _drawn(own, seed) if each.phases != own.phases),
    }
    return {arm: replace(each, name=arm) for arm, each in results.items()}


def _drawn(schedule: GrowthSchedule, seed: int) -> Iterator[GrowthSchedule]:
    chance = Random(f"{seed}/{RANDOM}")
    yield random_freezing(schedule, seed)
    while True:
        yield random_freezing(schedule, chance.getrandbits(32))


def permutation(schedule: GrowthSchedule, seed: int) -> tuple[int, ...] | None:
    """Draw an order for `GrowthSchedule.permuted` by `seed`; None if every layer has the same role.

    Of `DRAWS` orders it is the first in which the most layers change roles, since a blind draw may change few.
    """
    chance = Random(f"{seed}/{PERMUTED}")
    orders = [tuple(chance.sample(range(schedule.depth), schedule.depth)) for _ in range(DRAWS)]
    best = max(orders, key=lambda order: exchanged(schedule, schedule.permuted(order)))
    return best if exchanged(schedule, schedule.permuted(best)) else None


def exchanged(schedule: GrowthSchedule, other: GrowthSchedule) -> int:
    pairs = list(zip(schedule.phases, other.phases, strict=True))
    return sum(
        any((layer in one.trains) != (layer in two.trains) for one, two in pairs) for layer in range(schedule.depth)
    )


def most_steps(cost: ModelCost, budget: int) -> int:
    """The most steps that a schedule of `allocation` can take for the operations of `budget` uniform ones: its
    embedding and its head learn throughout, and if no layer did, two thirds of their cost would still be spent."""
    return ceil(budget * cost.total / (cost.embedding + cost.head + 2 / 3 * sum(cost.layers)))


def shortened(arms: Iterable[str]) -> tuple[str, ...]:
    """The arm that is also trained with a smaller budget: the published one, or else that of importance.

    >>> shortened(["uniform", "published", "importance"]), shortened(["uniform", "ramp"])
    (('published',), ())
    """
    return tuple(arm for arm in (PUBLISHED, IMPORTANCE) if arm in tuple(arms))[:1]


def lengths(steps: Iterable[int], budget: int, least: float = SHORTEST) -> tuple[float, ...]:
    """Return the lengths that uniform is also trained to, as shares of its budget: one below, and up to the longest
    arm, with one between if that is far, and down to `least` if an arm spends as little.

    >>> lengths([100, 128], budget=100), lengths([143], budget=100), lengths([120], budget=100, least=0.53)
    ((0.8, 1.3), (0.8, 1.2, 1.45), (0.5, 0.8, 1.2))
    """
    below = [floor(least / _GRAIN + 1e-9) * _GRAIN] if least < SHORTEST - 1e-9 else []
    longest = max(1 + _GRAIN, ceil(max(steps) / budget / _GRAIN - 1e-9) * _GRAIN)
    between = [sqrt(longest)] if longest > 1.3 + 1e-9 else []
    return tuple(round(length, 2) for length in (*below, SHORTEST, *between, longest))


def swept(arms: Iterable[str]) -> tuple[str, ...]:
    """The arms with a sweep of their own: uniform, and of the phased side those in `PHASED`, or else the first other.

    >>> swept(ARMS), swept(["uniform", "published", "ramp"]), swept(["uniform", "stacking", "ramp"])
    (('uniform', 'published', 'importance'), ('uniform', 'published'), ('uniform', 'stacking'))
    """
    others = [arm for arm in arms if arm != UNIFORM]
    return (UNIFORM, *([arm for arm in others if arm in PHASED] or others[:1]))


def rate_of(arm: str, chosen: Mapping[str, float]) -> float:
    """The setting of an arm that was swept, such as its rate: the one `chosen` for it, or that of its side.

    >>> chosen = {"uniform": 1.0, "published": 2.0, "importance": 3.0}
    >>> [rate_of(arm, chosen) for arm in ("uniform@1.25", "published", "permuted")]
    [1.0, 2.0, 3.0]
    """
    own = arm.partition("@")[0]
    side = [UNIFORM] if own == UNIFORM else [*PHASED, *(each for each in chosen if each != UNIFORM)]
    return next(chosen[each] for each in (own, *side) if each in chosen)


def ordered_arms(names: Sequence[str]) -> tuple[str, ...]:
    """Return the arms in the order of `ARMS`, with uniform.

    Raises `TrainError` for an unknown arm, and for a control without `importance`.
    """
    for name in names:
        if name not in ARMS:
            raise TrainError(f"there is no arm {name!r}; {near_matches(name, ARMS)}")
    lacking = [name for name in names if name in CONTROLS and IMPORTANCE not in names]
    if lacking:
        raise TrainError(f"{lacking[0]} is made from the schedule of {IMPORTANCE}; name that arm too")
    if not set(names) - {UNIFORM}:
        raise TrainError(f"{UNIFORM} alone is no study; name one of {', '.join(ARMS[1:])} beside it")
    return tuple(arm for arm in ARMS if arm in names or arm == UNIFORM)
