"""Random plans that mergekit's YAML can express: sequences of whole layers."""

import random
from collections.abc import Sequence

from layerwise.plan import Block, Plan, Stage, Visit

DEPTH = 24


def sequence(chance: random.Random, names: Sequence[str | None] = (None,), depth: int = DEPTH) -> Plan:
    visits: list[Visit] = []
    for _ in range(chance.randint(1, 4)):
        name, first, last = chance.choice(names), chance.randrange(depth), chance.randrange(depth)
        if chance.random() < 0.3:
            visits += [Visit(first, source=name)] * chance.randint(1, 3)
        elif first <= last or chance.random() < 0.1:
            step = 1 if first <= last else -1
            visits += [Visit(layer, source=name) for layer in range(first, last + step, step)]
        else:
            visits.append(Visit(first, source=name))
    return Plan(tuple(visits))


def repeated(chance: random.Random, plan: Plan) -> Plan:
    stages: list[Stage] = []
    for stage in plan.stages:
        assert isinstance(stage, Visit)
        times = chance.choice([1, 1, 2, 3])
        again = Visit(stage.layer, times, source=stage.source)
        stages.append(Block(Plan((again, stage)), 2) if chance.random() < 0.2 else again)
    return Plan(tuple(stages))
