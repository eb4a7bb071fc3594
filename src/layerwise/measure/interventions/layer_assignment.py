"""Which model each layer comes from: merged models drawn at random, as plans over sources.

A merged model of depth L has one layer at every position. Layers come from as many models as there are: with L models
or more no two layers are from the same one; with fewer, every model gives nearly equally many, L / K rounded down or
up (Freiberger et al. 2024, section 4.4, "Merging models with arbitrary execution order").
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from layerwise.errors import PlanError
from layerwise.plan import Plan, Visit
from layerwise.plan.checks import check_depth, shown


def assignments(models: Sequence[str], depth: int, draws: int, seed: int, *, own_depth: bool) -> tuple[Plan, ...]:
    """`draws` merged models of `depth` layers, each layer from one of `models`; the seed alone decides.

    With `own_depth` every layer stays at the depth it was trained at: position p runs layer p of a drawn model.
    Without, each layer number is used once and stands anywhere: position p runs layer s(p) of a drawn model, s a
    uniform permutation. Draws are independent, so that their spread estimates that of all merged models; where few
    are possible, some are drawn twice. Draw n does not depend on how many are asked for.

    >>> for plan in assignments(["a", "b"], depth=4, draws=2, seed=0, own_depth=True):
    ...     print(plan)
    a:0 b:1 a:2 b:3
    a:0 b:1 b:2 a:3

    Raises `PlanError` for fewer than two models, a name given twice, one layer, or no draws.
    """
    check_depth(depth, least=2)
    if len(models) < 2 or len(set(models)) < len(models):
        raise PlanError(f"a merged model takes layers from two models or more, each named once, not {list(models)}")
    if type(draws) is not int or draws < 1:
        raise PlanError(f"the number of draws is a whole number from 1 up, not {shown(draws)}")
    return tuple(_assignment(models, depth, random.Random(f"{seed}/{own_depth}/{n}"), own_depth) for n in range(draws))


def _assignment(models: Sequence[str], depth: int, chance: random.Random, own_depth: bool) -> Plan:
    rounds, rest = divmod(depth, len(models))
    sources = [*models] * rounds + chance.sample(list(models), rest)
    chance.shuffle(sources)
    layers = list(range(depth))
    if not own_depth:
        chance.shuffle(layers)
    return Plan(tuple(Visit(layer, source=name) for layer, name in zip(layers, sources, strict=True)))
