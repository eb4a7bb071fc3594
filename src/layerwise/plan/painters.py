"""The grid of "Transformer Layers as Painters" (Sun et al., 2024, arXiv 2407.09298, section 3), as published.

At depth T the published code keeps the layers 0..N and T-N..T-1 and lets a strategy act on the M = T - 2N - 1 layers
between them, for every N that leaves at least one: `skip`; `middle_repeat` (layer int(T/2) M times); `reverse`;
`random` (ten draws); `parallel` (all on one input, mean of the outputs); `looped_parallel` (the mean fed back, three
times in all).

The paper's text gives three different bounds for the window; these are those of its code, with which its figures agree.
Its ten seeds are not published; ours are `PAINTERS_SEEDS`.
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
"""The family of plans that are there for themselves: somebody wrote them."""

PAINTERS_SEEDS: tuple[int, ...] = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9)
"""The ten draws of a random order. Every window is shuffled afresh, by `random.Random(seed).shuffle`."""

PAINTERS_LOOPS = 3
"""How many times in all the published looped parallel runs its group."""

PAINTERS_RANKING = ("looped_parallel", "random", "reverse", "parallel", "skip", "middle_repeat")
"""The strategies from least to most harmful, as published (section 3.8 and figure 11)."""


@dataclass(frozen=True, slots=True)
class Member:
    """One plan of a family: a function from the depth of a model to such members.

    `strategy` is its curve (`skip`, `reverse`, ...), `affected` its position on the axis: by default the number of
    layers touched. `draw` is the seed of a random order.
    """

    plan: Plan
    family: str
    strategy: str
    affected: int
    draw: int | None = None


def painters(
    depth: int, seeds: Iterable[int] = PAINTERS_SEEDS, loops: Iterable[int] = (PAINTERS_LOOPS,)
) -> tuple[Member, ...]:
    """Every strategy on every published window; `affected` is M.

    Looped parallel is run for each count in `loops`; a count other than the published three is named in the
    strategy, `looped_parallel_5`. With M = 1 several strategies are the same plan; each still has its member.

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
"""How the families of `window` begin; the layers follow."""


def window(
    depth: int,
    first: int,
    last: int,
    seeds: Iterable[int] = PAINTERS_SEEDS,
    loops: Iterable[int] = (PAINTERS_LOOPS,),
) -> tuple[Member, ...]:
    """Every strategy on the layers `first` to `last`, both included, wherever they stand.

    The published windows are all centred. The family names the layers, and `affected` counts them. Raises `PlanError`
    for layers that a model of this depth does not have.

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
        raise PlanError(
            f"a window of layers {first}-{last} does not exist in {depth} layers, or is all of them; "
            f"choose some of 0-{depth - 1}"
        )
    drawn, counts = tuple(seeds), tuple(loops)
    return tuple(
        Member(plan, f"{WINDOW} {first}-{last}", strategy, last - first + 1, draw)
        for strategy, draw, plan in strategies(Plan.identity(depth), first, last + 1, drawn, counts)
    )


def published_windows(depth: int) -> tuple[tuple[int, int], ...]:
    """The published windows, widest first, each from its first layer up to, not including, its last.

    >>> published_windows(8)
    ((1, 8), (2, 7), (3, 6), (4, 5))
    """
    check_depth(depth, least=2)
    return tuple(middle_window(depth, depth - 2 * kept - 1) for kept in range(depth // 2))


def middle_window(depth: int, size: int) -> tuple[int, int]:
    """Return the window of `size` layers in the middle, from its first layer up to, not including, its last.

    A window that cannot be centered has one layer more before it than behind it, as the published ones do.

    >>> middle_window(32, 3), middle_window(32, 4)
    ((15, 18), (14, 18))
    """
    start = (depth - size + 1) // 2
    return start, start + size


def strategies(
    plan: Plan, start: int, stop: int, seeds: tuple[int, ...], loops: tuple[int, ...] = (PAINTERS_LOOPS,)
) -> Iterator[tuple[str, int | None, Plan]]:
    """Every strategy on one window of an unedited plan: its name, the seed of a random order, and the
    plan."""
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
    """Run the middle layer of a window of an unedited plan as often as the window has layers.

    On a published window of a model of T layers that layer is int(T/2), as published.

    >>> repeat_middle(Plan.identity(8), 3, 6)
    Plan('0-2 4*3 6 7')
    """
    plan = Plan.parse(plan)
    middle = Visit((start + stop - 1) // 2, stop - start)
    return Plan((*plan.stages[:start], middle, *plan.stages[stop:]))


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
