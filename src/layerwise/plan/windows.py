"""The window of half the depth, where the strategies of a sweep are compared: curves differ most about there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from layerwise.plan.painters import GIVEN, WINDOW

PUBLISHED = "painters"

NUMBERED = frozenset({"looped", "gain_sweep"})
"""Families whose strategies are numbers of loops, or gains."""


class SweptPlan(Protocol):
    """What a sweep lists of a plan."""

    @property
    def family(self) -> str: ...
    @property
    def strategy(self) -> str: ...
    @property
    def affected(self) -> int: ...


@dataclass(frozen=True, slots=True)
class LayerWindow:
    """A number of affected layers in one family."""

    family: str
    affected: int


def curve_families(plans: Iterable[SweptPlan]) -> tuple[str, ...]:
    sizes: dict[tuple[str, str], set[int]] = defaultdict(set)
    for each in plans:
        if each.family != GIVEN:
            sizes[each.family, each.strategy].add(each.affected)
    return tuple(dict.fromkeys(family for (family, _), members in sizes.items() if len(members) > 1))


def half_window(plans: Iterable[SweptPlan], depth: int) -> LayerWindow | None:
    """Return the window nearest to half the depth, at the size that most strategies were run at.

    The published family is preferred, then the first windows given by layers. Numbers of loops and gains do not count.
    """
    known = list(plans)
    families = tuple(family for family in curve_families(known) if family not in NUMBERED)
    families = families or tuple(each.family for each in known if each.family.startswith(f"{WINDOW} "))
    if not families:
        return None
    family = PUBLISHED if PUBLISHED in families else families[0]
    return LayerWindow(family, half_depth((each for each in known if each.family == family), depth))


def half_depth(plans: Iterable[SweptPlan], depth: int) -> int:
    strategies: dict[int, set[str]] = defaultdict(set)
    for each in plans:
        strategies[each.affected].add(each.strategy)
    most = max(map(len, strategies.values()))
    shared = [affected for affected, members in strategies.items() if len(members) == most]
    return min(shared, key=lambda affected: (abs(2 * affected - depth), affected))
