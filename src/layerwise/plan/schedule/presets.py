"""Growth schedules from the literature, for a model of any depth.

    published   the six phases of Growth Transformer Training (arXiv 2603.19348)
    freezing    after FreezeOut (arXiv 1706.04983)
    stacking    after G_stack (arXiv 2405.15319)
    lisa, ramp  after LISA (arXiv 2403.17919) and progressive layer dropping (arXiv 2010.13369)

"After" means that the idea is from the paper, but the numbers are not. All presets use the learning rate schedule of
the training run.
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
    """Train everything for half of the steps, then freeze one quarter of the layers after another, from the bottom.

    In FreezeOut, layers are frozen one by one, and their learning rates decay first. The embedding and a tied head are
    frozen with the first quarter. The last quarter and an untied head are trained to the end.

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
    """Train only the first third of the layers, then stack copies of them up to the full depth and train all layers.

    The paper of G_stack recommends to grow by a factor of four. The factor of three, the third of the steps before the
    growth, and the reset of the optimizer are choices of layerwise. The last copy may be incomplete.

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
    """Train two random layers at a time; always train the embedding and the head.

    LISA saves memory in fine-tuning. Ten steps between draws, and keeping the optimizer state, are choices of
    layerwise.

    >>> lisa(12).phases[0].sample
    2
    """
    check_depth(depth)
    phase = Phase("lisa", 1.0, tuple(range(depth)), sample=min(2, depth), every=10)
    return GrowthSchedule("lisa", depth, (phase,))


def ramp(depth: int) -> GrowthSchedule:
    """Skip layers at random, more often in deeper layers and at later steps.

    The probability of skipping the last layer grows from 0 to 0.5. Its linear growth is a choice of layerwise.

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
"""All presets by name, as functions of the depth."""


def preset(name: str, depth: int) -> GrowthSchedule:
    """Return the growth schedule `name` of `PRESETS` for a model of `depth` layers.

    >>> preset("uniform", depth=2).phases[0].trains
    (0, 1)
    """
    if name not in PRESETS:
        raise PlanError(f"unknown schedule {describe_value(name)}; {near_matches(str(name), PRESETS)}")
    return PRESETS[name](depth)


def random_freezing(schedule: GrowthSchedule, seed: int) -> GrowthSchedule:
    """Return a control for a schedule: each phase trains the same number of layers, but random ones.

    The control neither redraws nor scales layers. Raises `PlanError` if the schedule adds layers (`present`, `copies`).
    The cost of a step differs from that of the schedule; see `steps_for`.

    >>> [len(phase.trains) for phase in random_freezing(published(12), seed=0).phases]
    [2, 2, 2, 4, 2, 12]
    """
    phases = []
    for number, phase in enumerate(schedule.phases):
        if phase.present is not None or phase.copies:
            phase.refuse("the phase adds layers and cannot be random; use a schedule with all layers from the start")
        chance = random.Random(f"{seed}/random freezing/{number}")
        layers = tuple(sorted(chance.sample(range(schedule.depth), len(phase.trains))))
        phases.append(replace(phase, trains=layers, redraw=(), scale=()))
    return replace(schedule, name=f"{schedule.name} at random", phases=tuple(phases))


# -- the roles of the published schedule ---------------------------------------------------------------------------

ROLES = ("core", "neurulation", "organogenesis", "growth", "redundant", "anti", "last")
"""Roles of layers, in the order in which they are first trained."""

MIN_LAYERS = 8
"""Minimum depth at which every role has a layer and every layer has only one role."""

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

        core           trained in phase 1, gastrulation
        neurulation    trained in phase 2, neurulation
        organogenesis  trained in phase 3, organogenesis, and phase 4, growth
        growth         trained in phase 4, growth
        redundant      trained in phase 5, connective
        anti           reinitialized with random weights and scaled down in phase 5
        last           trained only in phase 6, maturation, which trains all layers

    For 12 and 30 layers, the roles are from the paper, with gaps filled (docs/papers/heterogeneity.md). At other
    depths, a layer has the role of the layer at its relative position among 30. Below a depth of 8, a layer has several
    roles.

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
