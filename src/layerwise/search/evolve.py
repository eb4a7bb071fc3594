"""Evolution by the rule of EvoPress (Sieberling et al. 2025, arXiv 2410.14649), on the rungs of the search.

The parent is at first the best of 64 random sets. Each of 32 offspring exchanges one to three layers (the smaller of
two draws); the best on all of the text replaces a parent that is not better, for k (n - k) / 1.5 generations with k of
n layers skipped, as in the authors' script. Unlike there, the rungs are the same text in every generation.

With other models, half of the exchanges take a layer from one of them, or back (Akiba et al. 2025, "Evolutionary
optimization of model merging recipes").
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random

from layerwise.errors import MeasureError
from layerwise.plan import Plan
from layerwise.search.greedy import SearchStep, Space
from layerwise.search.moves import cheaper, from_sources, restored, stages
from layerwise.search.one_shot import random_sets
from layerwise.search.rungs import Evaluator, RungSettings, contest

OFFSPRING = 32
FIRST = 64
MOST_EXCHANGES = 3
_SETTINGS = RungSettings(share=1 / 16, fewest=2, alpha=0.0, last=2)


def generations(space: Space) -> int:
    """How many generations the authors' script runs for a plan of this size.

    >>> generations(Space(32, ("drop",), lambda plan: float(len(plan.steps())), 20.0))
    160
    """
    removed = max(1, round(space.depth * (1 - space.limit / space.price(space.whole))))
    return max(1, int(removed * (space.depth - removed) / 1.5))


def evolve(evaluator: Evaluator, space: Space, *, seed: int = 0) -> Iterator[SearchStep]:
    """Yield the generations; the best of the last is the result. Raise `MeasureError` if no set is within the limit."""
    draw = Random(seed)
    starts = [space.whole] if space.allows(space.whole) else random_sets(space, FIRST, seed)
    if not starts:
        raise MeasureError(f"leaving out whole layers leads to no plan within {space.limit:g}: give a larger budget")
    ended = contest(evaluator, starts, space.whole, settings=RungSettings(share=1 / FIRST, fewest=1, alpha=0.0))
    parent, loss = next(iter(ended.losses.items()))
    yield SearchStep("random", ended)
    for _ in range(generations(space)):
        young = _offspring(space, parent, draw)
        if not young:
            return
        ended = contest(evaluator, young, parent, settings=_SETTINGS)
        losses = dict(sorted({parent: loss, **ended.losses}.items(), key=lambda each: each[1]))  # the parent wins ties
        parent, loss = next(iter(losses.items()))
        yield SearchStep("generation", replace(ended, losses=losses))


def _offspring(space: Space, parent: Plan, draw: Random) -> list[Plan]:
    young: dict[Plan, None] = {}
    for _ in range(20 * OFFSPRING):
        plan: Plan | None = parent
        for _ in range(min(draw.randint(1, MOST_EXCHANGES), draw.randint(1, MOST_EXCHANGES))):
            plan = None if plan is None else _exchange(space, plan, draw)
        if plan is not None and plan != parent:
            young.setdefault(plan)
        if len(young) == OFFSPRING:
            break
    return list(young)


def _exchange(space: Space, plan: Plan, draw: Random) -> Plan | None:
    taken = list(map(Plan, from_sources(stages(plan), space.sources)))
    if taken and draw.random() < 0.5:
        return draw.choice(taken)
    smaller = cheaper(plan, space.moves)
    if not smaller:
        return None
    back = restored(stages(draw.choice(smaller)), space.depth, halves="halves" in space.moves)
    possible = [each for each in map(Plan, back) if space.allows(each)]
    return draw.choice(possible) if possible else None
