"""Growth schedules from the literature, for a model of any depth.

    uniform, published  everything learns throughout; the six phases of Growth Transformer Training (arXiv 2603.19348)
    freezing, stacking  after FreezeOut (arXiv 1706.04983) and G_stack (arXiv 2405.15319)
    lisa, ramp          after LISA (arXiv 2403.17919) and PLD (arXiv 2010.13369)

"After" means the idea is theirs and the numbers are ours; every preset uses the training's own learning rate curve.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction

from layerwise.errors import PlanError, near_matches
from layerwise.plan.checks import check_depth, describe_value
from layerwise.plan.schedule.schedule import GrowthSchedule, Phase

_DAMPED = 0.9


def uniform(depth: int) -> GrowthSchedule:
    """Train everything in one phase.

    >>> uniform(12).to_json()["phases"]
    [{'name': 'uniform', 'share': 1.0, 'trains': '0-11'}]
    """
    check_depth(depth)
    return GrowthSchedule("uniform", depth, (Phase("uniform", 1.0, tuple(range(depth))),))


def published(depth: int) -> GrowthSchedule:
    """Return the six phases of Growth Transformer Training.

    The full paper was not available; docs/papers/heterogeneity.md lists what is known and what was assumed. If all
    layers cost the same and the head costs little, a step costs 0.8 of a uniform step, not 0.46 as published.

    >>> for phase in published(12).phases[:5]:
    ...     print(phase.name, f"{phase.share:g}", phase.trains)
    gastrulation 0.24 (4, 5)
    neurulation 0.16 (1, 2)
    organogenesis 0.16 (8, 9)
    growth 0.16 (7, 8, 9, 10)
    connective 0.16 (0, 3)
    >>> published(30).phases[0].trains, published(30).phases[4].redraw
    ((8, 9, 10, 11), (14, 17))
    """
    check_depth(depth)
    players = published_roles(depth)
    epochs = {
        "gastrulation": (30, players["core"]),
        "neurulation": (20, players["neurulation"]),
        "organogenesis": (20, players["organogenesis"]),
        "growth": (20, tuple(sorted({*players["growth"], *players["organogenesis"]}))),
        "connective": (20, players["redundant"]),
        "maturation": (15, tuple(range(depth))),
    }
    total = sum(length for length, _ in epochs.values())
    phases = {name: Phase(name, length / total, layers) for name, (length, layers) in epochs.items()}
    anti = players["anti"]
    phases["connective"] = replace(phases["connective"], redraw=anti, scale=tuple((layer, _DAMPED) for layer in anti))
    return GrowthSchedule("published", depth, tuple(phases.values()))


def freezing(depth: int) -> GrowthSchedule:
    """Freeze layers from the bottom: train everything for half of the steps, then freeze one quarter after another.

    As in FreezeOut, layers are frozen in order and stay frozen. Unlike in FreezeOut, they are frozen in four equal
    parts, without decaying their learning rates first. The embedding and a tied head are frozen with the first part.
    The last part and an untied head are trained to the end.

    >>> [phase.trains for phase in freezing(4).phases]
    [(0, 1, 2, 3), (1, 2, 3), (2, 3), (3,)]
    """
    check_depth(depth, least=2)
    parts = min(4, depth)
    phases = [Phase("all learn", 0.5, tuple(range(depth)))]
    for part in range(1, parts):
        first = part * depth // parts
        layers = tuple(range(first, depth))
        phases.append(Phase(f"from layer {first}", 0.5 / (parts - 1), layers, embedding=False))
    return GrowthSchedule("freezing", depth, tuple(phases))


def stacking(depth: int) -> GrowthSchedule:
    """Train the first third of the layers alone, then stack copies of it up to the full depth.

    From G_stack: the whole small model is copied once, in order, and everything learns. Chosen here: growth by three
    (its authors recommend four), a third of the steps before it, and a reset optimizer. The last copy may be cut short.

    >>> stacking(6).phases[1].copies
    ((2, 0), (3, 1), (4, 0), (5, 1))
    """
    check_depth(depth, least=2)
    first = tuple(range(-(-depth // 3)))
    copies = tuple((layer, layer % len(first)) for layer in range(len(first), depth))
    phases = (
        Phase("shallow", 1 / 3, first, present=first),
        Phase("stacked", 2 / 3, tuple(range(depth)), optimizer="drop", copies=copies),
    )
    return GrowthSchedule("stacking", depth, phases)


def lisa(depth: int) -> GrowthSchedule:
    """Train a few random layers at a time; embedding and head always learn.

    From LISA: what always learns, and uniform draws of two layers. Chosen here: ten steps between draws, and that the
    optimizer state of resting layers is kept. LISA is a method for fine-tuning in little memory.

    >>> lisa(12).phases[0].sample
    2
    """
    check_depth(depth)
    phase = Phase("lisa", 1.0, tuple(range(depth)), sample=min(2, depth), every=10)
    return GrowthSchedule("lisa", depth, (phase,))


def ramp(depth: int) -> GrowthSchedule:
    """Skip layers at random, deeper layers and later steps more often.

    The probability for the last layer grows from 0 to 0.5. From progressive layer dropping: more skipping with depth
    and with time, and the final 0.5. Chosen here: linear growth over time.

    >>> ramp(12).phases[0].drop
    (0.0, 0.5)
    """
    check_depth(depth)
    return GrowthSchedule("ramp", depth, (Phase("ramp", 1.0, tuple(range(depth)), drop=(0.0, 0.5)),))


PRESETS: Mapping[str, Callable[[int], GrowthSchedule]] = {
    "uniform": uniform,
    "published": published,
    "freezing": freezing,
    "stacking": stacking,
    "lisa": lisa,
    "ramp": ramp,
}
"""All named schedules as functions of the depth."""


def preset(name: str, depth: int) -> GrowthSchedule:
    """Return a preset for a model of `depth` layers.

    >>> preset("uniform", depth=2).phases[0].trains
    (0, 1)
    """
    if name not in PRESETS:
        raise PlanError(f"unknown schedule {describe_value(name)}; {near_matches(str(name), PRESETS)}")
    return PRESETS[name](depth)


def random_freezing(schedule: GrowthSchedule, seed: int) -> GrowthSchedule:
    """Return the control of a schedule: every phase trains as many layers, chosen at random.

    Redraws and scales are removed. Raises `PlanError` if layers grow in (`present`, `copies`). Equal steps do not cost
    the same; see `layerwise.plan.schedule.cost.steps_for`.

    >>> [len(phase.trains) for phase in random_freezing(published(12), seed=0).phases]
    [2, 2, 2, 4, 2, 12]
    """
    phases = []
    for number, phase in enumerate(schedule.phases):
        if phase.present is not None or phase.copies:
            phase.refuse("layers grow in and cannot be drawn at random; use a schedule in which all layers are present")
        chance = random.Random(f"{seed}/random freezing/{number}")
        layers = tuple(sorted(chance.sample(range(schedule.depth), len(phase.trains))))
        phases.append(replace(phase, trains=layers, redraw=(), scale=()))
    return replace(schedule, name=f"{schedule.name} at random", phases=tuple(phases))


# -- the roles of the published schedule ---------------------------------------------------------------------------

ROLES = ("core", "neurulation", "organogenesis", "growth", "redundant", "anti", "last")
"""Roles in the order in which they start to learn."""

MIN_LAYERS = 8
"""Minimum depth at which every role has a layer and every layer one role."""

_TWELVE: Mapping[str, tuple[int, ...]] = {
    "core": (4, 5),
    "neurulation": (1, 2),
    "organogenesis": (8, 9),
    "growth": (7, 10),
    "redundant": (0, 3),
    "anti": (6,),
    "last": (11,),
}

_THIRTY: Mapping[str, tuple[int, ...]] = {
    "core": (8, 9, 10, 11),
    "neurulation": (2, 3, 4, 5, 6),
    "organogenesis": (20, 21, 22, 23, 24),
    "growth": (18, 19, 25, 26),
    "redundant": (0, 1, 7, 12, 13, 15, 16),
    "anti": (14, 17),
    "last": (27, 28, 29),
}


def published_roles(depth: int) -> dict[str, tuple[int, ...]]:
    """Return the layers, in ascending order, of each role in the published growth schedule.

        core           learns first (gastrulation)
        neurulation    learns second
        organogenesis  learns third, and again with growth
        growth         learns in growth only
        redundant      learns in connective
        anti           is redrawn and damped, and learns in maturation only
        last           learns in maturation only

    For 12 and 30 layers the roles are the paper's, with gaps filled (docs/papers/heterogeneity.md). At other depths a
    layer has the role at its relative position in 30; from 8 layers on every role has a layer. Below that, layers
    combine roles.

    >>> {role: layers for role, layers in published_roles(8).items() if role in ("core", "anti")}
    {'core': (2,), 'anti': (4,)}
    """
    check_depth(depth)
    if depth < MIN_LAYERS:
        return _shared(depth)
    if depth == _depth(_TWELVE):
        return dict(_TWELVE)
    role_of = {layer: role for role, layers in _THIRTY.items() for layer in layers}
    played = [role_of[int(_position(layer, depth))] for layer in range(depth)]
    for role in ROLES:
        if role not in played:
            played[_nearest_layer(role, played)] = role
    return {role: tuple(layer for layer in range(depth) if played[layer] == role) for role in ROLES}


def _nearest_layer(role: str, played: list[str]) -> int:
    counts = Counter(played)
    middle = Fraction(sum(_THIRTY[role]), len(_THIRTY[role])) + Fraction(1, 2)
    free = (layer for layer in range(len(played)) if counts[played[layer]] > 1)
    return min(free, key=lambda layer: abs(_position(layer, len(played)) - middle))


def _position(layer: int, depth: int) -> Fraction:
    return Fraction((2 * layer + 1) * _depth(_THIRTY), 2 * depth)


def _shared(depth: int) -> dict[str, tuple[int, ...]]:
    count = _depth(_TWELVE)
    players = {
        role: tuple(sorted({(2 * layer + 1) * depth // (2 * count) for layer in of})) for role, of in _TWELVE.items()
    }
    early = {layer for role in ROLES[:5] for layer in players[role]}
    late = {role: tuple(layer for layer in players[role] if layer not in early) for role in ("anti", "last")}
    return players | late


def _depth(table: Mapping[str, tuple[int, ...]]) -> int:
    return sum(map(len, table.values()))
