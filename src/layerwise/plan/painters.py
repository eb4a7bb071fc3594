"""The plans of "Transformer Layers as Painters" (Sun et al., 2024, arXiv 2407.09298, section 3).

At depth T, the published code keeps layers 0 to N and T - N to T - 1, and applies each strategy to the M = T - 2N - 1
layers between them, for every N that leaves at least one. The text of the paper gives three other bounds for this
window. The bounds used here agree with its figures. The random seeds of the paper are not published.
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
"""Family name of plans that the user wrote."""

PAINTERS_SEEDS: tuple[int, ...] = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9)

PAINTERS_LOOPS = 3
"""Number of times that looped parallel runs a window in the paper."""

PAINTERS_RANKING = ("looped_parallel", "random", "reverse", "parallel", "skip", "middle_repeat")
"""Published strategies from least to most harmful (section 3.8 and figure 11)."""


@dataclass(frozen=True, slots=True)
class Member:
    """One plan of a family.

    Attributes:
        plan: The layer plan.
        family: Name of the family.
        strategy: What the plan does (`skip`, `reverse`, ...). The plans of one strategy form a curve.
        affected: Number of affected layers, the x axis of the curve.
        draw: Seed or number of the random draw.
    """

    plan: Plan
    family: str
    strategy: str
    affected: int
    draw: int | None = None


def painters(
    depth: int, seeds: Iterable[int] = PAINTERS_SEEDS, loops: Iterable[int] = (PAINTERS_LOOPS,)
) -> tuple[Member, ...]:
    """Apply every strategy of the Painters paper to each of its windows of middle layers.

    `affected` is the number of layers in the window. `loops` lists how many times looped parallel runs a window. Counts
    other than the published three become part of the strategy, as in `looped_parallel_5`.

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
"""Prefix of the family names that `window` gives."""


def window(
    depth: int,
    first: int,
    last: int,
    seeds: Iterable[int] = PAINTERS_SEEDS,
    loops: Iterable[int] = (PAINTERS_LOOPS,),
) -> tuple[Member, ...]:
    """Apply every strategy of `painters` to layers `first` to `last`, inclusive. The family is `window FIRST-LAST`.

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
        raise PlanError(f"a window must contain some, but not all, of the layers 0-{depth - 1}, got {first}-{last}")
    drawn, counts = tuple(seeds), tuple(loops)
    return tuple(
        Member(plan, f"{WINDOW} {first}-{last}", strategy, last - first + 1, draw)
        for strategy, draw, plan in strategies(Plan.identity(depth), first, last + 1, drawn, counts)
    )


def published_windows(depth: int) -> tuple[tuple[int, int], ...]:
    """Return the (start, stop) of each window of middle layers in the paper, widest first.

    >>> published_windows(8)
    ((1, 8), (2, 7), (3, 6), (4, 5))
    """
    check_depth(depth, least=2)
    return tuple(middle_window(depth, depth - 2 * kept - 1) for kept in range(depth // 2))


def middle_window(depth: int, size: int) -> tuple[int, int]:
    """Return the (start, stop) of the `size` middle layers. If they are not centered, they are closer to the end.

    >>> middle_window(32, 3), middle_window(32, 4)
    ((15, 18), (14, 18))
    """
    start = (depth - size + 1) // 2
    return start, start + size


def strategies(
    plan: Plan, start: int, stop: int, seeds: tuple[int, ...], loops: tuple[int, ...] = (PAINTERS_LOOPS,)
) -> Iterator[tuple[str, int | None, Plan]]:
    """Apply every strategy of `painters` to a window of an identity plan. Yield the strategy, the seed and the plan."""
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
    """Replace each layer of a window of an identity plan by the window's middle layer.

    >>> repeat_middle(Plan.identity(8), 3, 6)
    Plan('0-2 4*3 6 7')
    """
    plan = Plan.parse(plan)
    middle = Visit((start + stop - 1) // 2, stop - start)
    return Plan((*plan.stages[:start], middle, *plan.stages[stop:]))


PUBLISHED = "painters"


class SweptPlan(Protocol):
    @property
    def family(self) -> str: ...
    @property
    def strategy(self) -> str: ...
    @property
    def affected(self) -> int: ...


@dataclass(frozen=True, slots=True)
class LayerWindow:
    """The plans of a family that affect a given number of layers."""

    family: str
    affected: int


def curve_families(plans: Iterable[SweptPlan]) -> tuple[str, ...]:
    sizes: dict[tuple[str, str], set[int]] = defaultdict(set)
    for each in plans:
        if each.family != GIVEN:
            sizes[each.family, each.strategy].add(each.affected)
    return tuple(dict.fromkeys(family for (family, _), members in sizes.items() if len(members) > 1))


def half_window(plans: Iterable[SweptPlan], depth: int) -> LayerWindow | None:
    """Choose a plan family, and the number of affected layers that is nearest to half of the depth.

    The family is `painters` if it was run, otherwise the first window that the user gave. In other families, plans of
    the same size change different layers, so their strategies cannot be compared. Only the numbers of layers for which
    the most strategies were run are considered.
    """
    known = list(plans)
    explicit = (each.family for each in known if each.family.startswith(f"{WINDOW} "))
    family = PUBLISHED if PUBLISHED in curve_families(known) else next(explicit, None)
    if family is None:
        return None
    return LayerWindow(family, half_depth((each for each in known if each.family == family), depth))


def half_depth(plans: Iterable[SweptPlan], depth: int) -> int:
    strategies: dict[int, set[str]] = defaultdict(set)
    for each in plans:
        strategies[each.affected].add(each.strategy)
    most = max(map(len, strategies.values()))
    shared = [affected for affected, members in strategies.items() if len(members) == most]
    return min(shared, key=lambda affected: (abs(2 * affected - depth), affected))
