"""Evolutionary search, as in EvoPress (Sieberling et al. 2025, arXiv 2410.14649).

The first parent is the best of 64 random plans. In each generation, 32 offspring exchange one to three layers (the
smaller of two draws), and the best of them replaces the parent if its loss is lower. If k of n layers are skipped,
there are k (n - k) / 1.5 generations, as in the authors' script. Unlike there, all generations use the same text.

If layers of other models are allowed, half of the exchanges replace a layer by one of another model, or the reverse
(Akiba et al. 2025, "Evolutionary optimization of model merging recipes").
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random

from layerwise.errors import MeasureError
from layerwise.plan import Plan
from layerwise.search.edits import list_cheaper, restore_layers, swap_sources, unroll
from layerwise.search.greedy import SearchStep, Space
from layerwise.search.one_shot import draw_random_sets
from layerwise.search.rungs import Evaluator, RungSettings, run_round

OFFSPRING = 32
FIRST_SETS = 64
MAX_EXCHANGES = 3
_SETTINGS = RungSettings(share=1 / 16, min_survivors=2, alpha=0.0, last=2)


def count_generations(space: Space) -> int:
    """Return the number of generations that the authors' script runs for this model and limit.

    >>> count_generations(Space(32, ("drop",), lambda plan: float(len(plan.steps())), 20.0))
    160
    """
    removed = max(1, round(space.depth * (1 - space.limit / space.cost(space.original))))
    return max(1, int(removed * (space.depth - removed) / 1.5))


def evolve(evaluator: Evaluator, space: Space, *, seed: int = 0) -> Iterator[SearchStep]:
    """Yield the generations. The best plan of the last one is the result.

    Raises:
        MeasureError: If no plan with skipped layers is within the limit.
    """
    draw = Random(seed)
    starts = [space.original] if space.allows(space.original) else draw_random_sets(space, FIRST_SETS, seed)
    if not starts:
        raise MeasureError(
            f"--budget is too small: no plan with skipped layers is within {space.limit:g}. Pass a larger budget."
        )
    settings = RungSettings(share=1 / FIRST_SETS, min_survivors=1, alpha=0.0)
    result = run_round(evaluator, starts, space.original, settings=settings)
    parent, loss = next(iter(result.losses.items()))
    yield SearchStep("random", result)
    for _ in range(count_generations(space)):
        young = _offspring(space, parent, draw)
        if not young:
            return
        result = run_round(evaluator, young, parent, settings=_SETTINGS)
        losses = dict(sorted({parent: loss, **result.losses}.items(), key=lambda each: each[1]))  # the parent wins ties
        parent, loss = next(iter(losses.items()))
        yield SearchStep("generation", replace(result, losses=losses))


def _offspring(space: Space, parent: Plan, draw: Random) -> list[Plan]:
    young: dict[Plan, None] = {}
    for _ in range(20 * OFFSPRING):
        plan: Plan | None = parent
        for _ in range(min(draw.randint(1, MAX_EXCHANGES), draw.randint(1, MAX_EXCHANGES))):
            plan = None if plan is None else _exchange(space, plan, draw)
        if plan is not None and plan != parent:
            young.setdefault(plan)
        if len(young) == OFFSPRING:
            break
    return list(young)


def _exchange(space: Space, plan: Plan, draw: Random) -> Plan | None:
    taken = list(map(Plan, swap_sources(unroll(plan), space.sources)))
    if taken and draw.random() < 0.5:
        return draw.choice(taken)
    smaller = list_cheaper(plan, space.edits)
    if not smaller:
        return None
    back = restore_layers(unroll(draw.choice(smaller)), space.depth, sublayers="sublayers" in space.edits)
    possible = [each for each in map(Plan, back) if space.allows(each)]
    return draw.choice(possible) if possible else None
