"""The plans of "Transformer Layers as Painters" (Sun et al., 2024, arXiv 2407.09298, section 3).

At depth T the published code keeps layers 0..N and T-N..T-1 and applies a strategy to the M = T - 2N - 1 layers between
them, for every N that leaves at least one. The paper's text gives three different bounds for the window. These are the
bounds of its code, which agree with its figures. Its seeds are not published.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from layerwise.errors import PlanError
from layerwise.plan import edits
from layerwise.plan.checks import check_depth
from layerwise.plan.plan import Plan, Visit

GIVEN = "given"
"""Family of plans that the user wrote."""

PAINTERS_SEEDS: tuple[int, ...] = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9)
"""Seeds of the ten random orders."""

PAINTERS_LOOPS = 3
"""Number of loops of the published looped parallel."""

PAINTERS_RANKING = ("looped_parallel", "random", "reverse", "parallel", "skip", "middle_repeat")
"""Published strategies from least to most harmful (section 3.8 and figure 11)."""


@dataclass(frozen=True, slots=True)
class Member:
    """One plan of a family.

    Attributes:
        plan: The layer plan.
        family: Name of the family.
        strategy: Curve of the plan (`skip`, `reverse`, ...).
        affected: Position on the x axis, by default the number of affected layers.
        draw: Seed of a random order.
    """

    plan: Plan
    family: str
    strategy: str
    affected: int
    draw: int | None = None


def painters(
    depth: int, seeds: Iterable[int] = PAINTERS_SEEDS, loops: Iterable[int] = (PAINTERS_LOOPS,)
) -> tuple[Member, ...]:
    """Apply every strategy to every published window; `affected` is M.

    A number of `loops` other than the published three is part of the strategy, as in `looped_parallel_5`.

    >>> for member in painters(4, seeds=[0]):
    ...     print(f"{member.strategy:16}{member.affected}  {member.plan}")
    skip            3  0
    middle_repeat   3  0 2*3
    reverse         3  0 3-1
    random          3  0 1 3 2
    parallel        3  0 (1|2|3)
    looped_parallel 3  0 (1|2|3)*3
    skip            1  0 1 3
    middle_repeat   1  0-3
    reverse         1  0-3
    random          1  0-3
    parallel        1  0-3
    looped_parallel 1  0 1 2*3 3
    """
    drawn, counts = tuple(seeds), tuple(loops)
    return tuple(
        Member(plan, "painters", strategy, stop - start, draw)
        for start, stop in published_windows(depth)
        for strategy, draw, plan in strategies(Plan.identity(depth), start, stop, drawn, counts)
    )


WINDOW = "window"
"""Prefix of the families of `window`."""


def window(
    depth: int,
    first: int,
    last: int,
    seeds: Iterable[int] = PAINTERS_SEEDS,
    loops: Iterable[int] = (PAINTERS_LOOPS,),
) -> tuple[Member, ...]:
    """Apply every strategy to layers `first` to `last`, inclusive; the family names the layers.

    >>> for member in window(6, 1, 2, seeds=[0]):
    ...     print(f"{member.family}  {member.strategy:16}{member.affected}  {member.plan}")
    window 1-2  skip            2  0 3-5
    window 1-2  middle_repeat   2  0 1*2 3-5
    window 1-2  reverse         2  0 2 1 3-5
    window 1-2  random          2  0-5
    window 1-2  parallel        2  0 (1|2) 3-5
    window 1-2  looped_parallel 2  0 (1|2)*3 3-5
    """
    check_depth(depth, least=2)
    if not 0 <= first <= last < depth or last - first + 1 == depth:
        raise PlanError(f"a window must be a proper part of the layers 0-{depth - 1}, got {first}-{last}")
    drawn, counts = tuple(seeds), tuple(loops)
    return tuple(
        Member(plan, f"{WINDOW} {first}-{last}", strategy, last - first + 1, draw)
        for strategy, draw, plan in strategies(Plan.identity(depth), first, last + 1, drawn, counts)
    )


def published_windows(depth: int) -> tuple[tuple[int, int], ...]:
    """Return the published windows as (start, stop), widest first.

    >>> published_windows(8)
    ((1, 8), (2, 7), (3, 6), (4, 5))
    """
    check_depth(depth, least=2)
    return tuple(middle_window(depth, depth - 2 * kept - 1) for kept in range(depth // 2))


def middle_window(depth: int, size: int) -> tuple[int, int]:
    """Return the middle window of `size` layers as (start, stop); if it is not centered, one more layer precedes it.

    >>> middle_window(32, 3), middle_window(32, 4)
    ((15, 18), (14, 18))
    """
    start = (depth - size + 1) // 2
    return start, start + size


def strategies(
    plan: Plan, start: int, stop: int, seeds: tuple[int, ...], loops: tuple[int, ...] = (PAINTERS_LOOPS,)
) -> Iterator[tuple[str, int | None, Plan]]:
    """Yield the strategy, seed and plan of every strategy on one window of an identity plan."""
    yield "skip", None, edits.skip(plan, *range(start, stop))
    yield "middle_repeat", None, repeat_middle(plan, start, stop)
    yield "reverse", None, edits.reverse(plan, start, stop)
    for seed in seeds:
        yield "random", seed, edits.shuffle(plan, start, stop, seed)
    yield "parallel", None, edits.parallel(plan, start, stop)
    for times in loops:
        name = "looped_parallel" if times == PAINTERS_LOOPS else f"looped_parallel_{times}"
        yield name, None, edits.loop(plan, start, stop, times)


def repeat_middle(plan: Plan | str, start: int, stop: int) -> Plan:
    """Run the middle layer of a window of an identity plan as often as the window has layers.

    >>> repeat_middle(Plan.identity(8), 3, 6)
    Plan('0-2 4*3 6 7')
    """
    plan = Plan.parse(plan)
    middle = Visit((start + stop - 1) // 2, stop - start)
    return Plan((*plan.stages[:start], middle, *plan.stages[stop:]))


PUBLISHED = "painters"

NUMBERED = frozenset({"looped", "gain_sweep"})
"""Families whose strategies are loop counts or gains."""


class SweptPlan(Protocol):
    @property
    def family(self) -> str: ...
    @property
    def strategy(self) -> str: ...
    @property
    def affected(self) -> int: ...


@dataclass(frozen=True, slots=True)
class LayerWindow:
    """A number of affected layers in a family."""

    family: str
    affected: int


def curve_families(plans: Iterable[SweptPlan]) -> tuple[str, ...]:
    sizes: dict[tuple[str, str], set[int]] = defaultdict(set)
    for each in plans:
        if each.family != GIVEN:
            sizes[each.family, each.strategy].add(each.affected)
    return tuple(dict.fromkeys(family for (family, _), members in sizes.items() if len(members) > 1))


def half_window(plans: Iterable[SweptPlan], depth: int) -> LayerWindow | None:
    """Return the window whose size is nearest to half of the depth, among those with the most strategies.

    The Painters' family is preferred, then the first explicit window.
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
