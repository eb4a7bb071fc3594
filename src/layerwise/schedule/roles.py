"""Which layer plays which role of the published growth schedule, in a model of any depth.

    core           learns first (gastrulation): "critical core"
    neurulation    learns second
    organogenesis  learns third, and again with growth
    growth         learns in growth alone
    redundant      learns in connective: "redundant tissue"
    anti           learns in maturation alone; before, it is given new random weights and damped: "anti-layers"
    last           learns in maturation alone

The founding paper names its layers twice. Of 30 layers it measured the core (8-11) and the anti-layers (14 and 17); of
12 layers it trained phases that a digest lists. Those are kept: a model of 30 layers has the first places, one of 12
the second ones. What neither names is chosen here. Of 12 layers, the redundant ones are 0 and 3, the anti-layer is 6
(the one that the phases leave free nearest to 14 and 17 of 30), and layer 11 waits for maturation, as a digest says. Of
30, neurulation, organogenesis and growth are where they are of 12, layers that lie between the named ones are
redundant, and the last three wait.

In a model of another depth every layer plays the role of the one at its relative position in 30. A role that this
leaves without a layer takes the nearest one of a role that has several; from 8 layers on, every role has a layer and
every layer one role. In a shallower model there are fewer layers than places: a layer has the roles of all of the 12
that fall on it, and there may be no anti-layer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from fractions import Fraction

from layerwise.plan.checks import check_depth

ROLES = ("core", "neurulation", "organogenesis", "growth", "redundant", "anti", "last")
"""In the order in which they begin to learn, and to be given a layer where the relative position gives them none."""

FEWEST_LAYERS = 8
"""The least depth at which every role has a layer and every layer one role."""

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
    """Role to its layers, ascending, of a model of `depth` layers; the module says by which rule.

    >>> {role: layers for role, layers in published_roles(8).items() if role in ("core", "anti")}
    {'core': (2,), 'anti': (4,)}
    """
    check_depth(depth)
    if depth < FEWEST_LAYERS:
        return _shared(depth)
    if depth == _depth(_TWELVE):
        return dict(_TWELVE)
    role_of = {layer: role for role, layers in _THIRTY.items() for layer in layers}
    played = [role_of[int(_position(layer, depth))] for layer in range(depth)]
    for role in ROLES:
        if role not in played:
            played[_nearest(role, played)] = role
    return {role: tuple(layer for layer in range(depth) if played[layer] == role) for role in ROLES}


def _nearest(role: str, played: list[str]) -> int:
    """The layer nearest to the middle of where `role` is played, of those whose own role has several."""
    counts = Counter(played)
    middle = Fraction(sum(_THIRTY[role]), len(_THIRTY[role])) + Fraction(1, 2)
    free = (layer for layer in range(len(played)) if counts[played[layer]] > 1)
    return min(free, key=lambda layer: abs(_position(layer, len(played)) - middle))


def _position(layer: int, depth: int) -> Fraction:
    """The middle of a layer, on a scale on which 30 layers reach from 0 to 30."""
    return Fraction((2 * layer + 1) * _depth(_THIRTY), 2 * depth)


def _shared(depth: int) -> dict[str, tuple[int, ...]]:
    """The roles where there are fewer layers than places: each of 12 falls on a layer, which plays all of its roles.

    What learns early is no anti-layer and does not wait.
    """
    count = _depth(_TWELVE)
    players = {role: _unique((2 * layer + 1) * depth // (2 * count) for layer in of) for role, of in _TWELVE.items()}
    early = {layer for role in ROLES[:5] for layer in players[role]}
    late = {role: tuple(layer for layer in players[role] if layer not in early) for role in ("anti", "last")}
    return players | late


def _unique(layers: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted(set(layers)))


def _depth(table: Mapping[str, tuple[int, ...]]) -> int:
    """How many layers a table gives roles to."""
    return sum(map(len, table.values()))
