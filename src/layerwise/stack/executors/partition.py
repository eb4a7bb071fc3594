"""Split plans among workers, which share no states; the cost is compared with one process.

Depth first, plans that share most are adjacent. Each part is a run of that order, cut to minimize the largest cost.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from layerwise.plan import Plan
from layerwise.stack.executors.graph import Lowering

_HALVINGS = 40


@dataclass(frozen=True, slots=True)
class Partition:
    """What parts of a work cost, in layer evaluations; `whole` is what one process would compute."""

    whole: float
    parts: tuple[float, ...]

    @property
    def duplicates(self) -> float:
        return sum(self.parts) / self.whole - 1

    def bound(self, workers: int) -> float:
        """How much faster than one worker so many can be at most, where each takes the next part when it is free.

        >>> Partition(30.0, (10.0, 10.0, 10.0)).bound(2)
        1.5
        """
        ends = [0.0] * workers
        for part in self.parts:
            first = min(range(workers), key=ends.__getitem__)
            ends[first] += part
        return self.whole / max(ends)


def depth_first(plans: Iterable[Plan]) -> list[Plan]:
    """The plans in the order of their steps, so that those with a common beginning stand side by side.

    >>> from layerwise.plan.families import leave_one_out
    >>> [str(plan) for plan in depth_first(member.plan for member in leave_one_out(4))]
    ['0-2', '0 1 3', '0 2 3', '1-3']
    """
    return sorted(plans, key=lambda plan: [repr(step) for step in plan.steps()])


def runs(plans: Sequence[Plan], count: int, head: float = 0.0) -> tuple[tuple[Plan, ...], ...]:
    """At most `count` runs of `plans`, none of them empty, the most expensive as cheap as any such cut can make it.

    A run costs its distinct layer evaluations, and for each of its final states `head` of them. The plans keep their
    order; `depth_first` makes runs cheap. Raises `ValueError` for a count below 1.

    >>> from layerwise.plan.families import leave_one_out
    >>> plans = depth_first(member.plan for member in leave_one_out(4))
    >>> [[str(plan) for plan in run] for run in runs(plans, 2)]
    [['0-2', '0 1 3', '0 2 3'], ['1-3']]
    """
    if count < 1:
        raise ValueError(f"{count} runs were asked for; ask for 1 or more")
    if count == 1 or len(plans) <= 1:
        return (tuple(plans),) if plans else ()
    low, high = 0.0, cost(plans, head)
    best = [list(plans)]
    for _ in range(_HALVINGS):
        limit = (low + high) / 2
        cut = _cut(plans, limit, head)
        if cut is not None and len(cut) <= count:
            best, high = cut, max(cost(run, head) for run in cut)
        else:
            low = limit
        if high - low < 0.5 * min(1.0, head or 1.0):
            break
    return tuple(tuple(run) for run in best)


def cost(plans: Iterable[Plan], head: float = 0.0) -> float:
    """The distinct layer evaluations of plans that are computed together, and `head` for each of their final states."""
    lowering = Lowering()
    for plan in plans:
        lowering.add(plan)
    return _cost(lowering, head)


def _cost(lowering: Lowering, head: float) -> float:
    return lowering.evaluations + head * lowering.heads


def _cut(plans: Sequence[Plan], limit: float, head: float) -> list[list[Plan]] | None:
    parts: list[list[Plan]] = []
    lowering = Lowering()
    for plan in plans:
        lowering.add(plan)
        if not parts or _cost(lowering, head) > limit:
            parts.append([])
            lowering = Lowering()
            lowering.add(plan)
            if _cost(lowering, head) > limit:
                return None
        parts[-1].append(plan)
    return parts
