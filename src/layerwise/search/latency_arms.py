"""Ways of spending less time, or more, as arms: for each the plans that are tried, and those that a text leaves.

    skip        runs of adjacent layers; and sets: those of a single score (`layerwise.search.one_shot`), and the one
                that removals one after another lead to
    parallel    groups of two and of four in a row, and a whole window as one group, the Painters' parallel; each group
                returns the mean of its members' outputs, or adds all their updates (`:sum`)
    looped      a window run twice; a window whose middle layer runs in the place of all of it, as often (the Painters'
                middle repeat) or twice; a group run three times (the Painters' looped parallel)

A kind of plan of one size stands at every position that there is. One text chooses the position, and the merge; the
plans that it leaves, one for each kind and size, are to be measured on another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from layerwise.measure.language.evaluation_data import EvalData
from layerwise.plan import Plan, Reduction, edits
from layerwise.plan.painters import PAINTERS_LOOPS, repeat_middle
from layerwise.plan.plan import Stage, Visit
from layerwise.search.greedy import Space
from layerwise.search.one_shot import one_shot_plans, skip_effects, turning
from layerwise.search.rungs import Evaluator, mean_losses
from layerwise.stack import Stack

MERGES = (Reduction("mean"), Reduction("sum"))
GROUPS: Mapping[str, int] = {"pairs": 2, "fours": 4}


@dataclass(frozen=True, slots=True)
class ArmPlan:
    """A plan of an arm: its `kind` within the arm, and how many layers it leaves out, joins or repeats."""

    arm: str
    kind: str
    size: int
    plan: Plan


def candidates(depth: int, sizes: int) -> Iterator[ArmPlan]:
    """Every plan of every arm but the sets of skipped layers, of at most `sizes` sizes of each kind.

    >>> plans = [each for each in candidates(6, 2) if each.kind == "pairs"]
    >>> str(plans[0].plan), str(plans[1].plan), {each.size for each in plans}
    ('(0|1) 2-5', '(0|1):sum 2-5', {2, 4})
    """
    whole = Plan.identity(depth)
    for size in skip_sizes(depth, sizes):
        for start in range(depth - size + 1):
            yield ArmPlan("skip", "window", size, edits.skip(whole, *range(start, start + size)))
    for kind, members in GROUPS.items():
        for count in spread(range(1, (depth - 1) // members + 1), sizes):
            for start in range(depth - count * members + 1):
                for merge in MERGES:
                    plan = grouped(depth, start, members, count, merge)
                    yield ArmPlan("parallel", kind, count * members, plan)
    for size in spread(range(3, depth // 2 + 1), max(1, sizes // 2)):
        for start in range(depth - size + 1):
            for merge in MERGES:
                yield ArmPlan("parallel", "window", size, edits.parallel(whole, start, start + size, merge))
            yield ArmPlan("looped", "middle repeat", size, repeat_middle(whole, start, start + size))
            yield ArmPlan("looped", "middle twice", size, middle_twice(depth, start, size))
    for size in (1, 2, 4):
        for start in range(depth - size + 1):
            yield ArmPlan("looped", "repeat", size, edits.repeat(whole, start, start + size, 2))
    for size in GROUPS.values():
        for start in range(depth - size + 1):
            plan = edits.loop(whole, start, start + size, PAINTERS_LOOPS)
            yield ArmPlan("looped", "looped parallel", size, plan)


def grouped(depth: int, start: int, members: int, count: int, merge: Reduction) -> Plan:
    """The whole model with `count` groups of `members` layers each, in a row from layer `start` on.

    >>> str(grouped(8, 2, 2, 2, Reduction("mean")))
    '0 1 (2|3) (4|5) 6 7'
    """
    plan = Plan.identity(depth)
    for group in reversed(range(count)):
        first = start + group * members
        plan = edits.parallel(plan, first, first + members, merge)
    return plan


def middle_twice(depth: int, start: int, size: int) -> Plan:
    """The whole model with the middle layer of a window, run twice, in the place of the window.

    >>> str(middle_twice(8, 2, 4))
    '0 1 3*2 6 7'
    """
    stages: tuple[Stage, ...] = Plan.identity(depth).stages
    return Plan((*stages[:start], Visit((2 * start + size - 1) // 2, 2), *stages[start + size :]))


def skip_sizes(depth: int, sizes: int) -> list[int]:
    """How many layers are left out: up to half of them."""
    return spread(range(1, depth // 2 + 1), sizes)


def spread(numbers: Sequence[int], most: int) -> list[int]:
    """At most `most` of the numbers, evenly spread, both ends among them.

    >>> spread(range(1, 13), 4), spread(range(1, 4), 4), spread(range(1, 9), 1)
    ([1, 5, 8, 12], [1, 2, 3], [1])
    """
    if len(numbers) <= most:
        return list(numbers)
    step = (len(numbers) - 1) / max(1, most - 1)
    return [numbers[round(index * step)] for index in range(most)]


def skip_sets(stack: Stack, evaluator: Evaluator, text: EvalData, sizes: Sequence[int]) -> Iterator[ArmPlan]:
    """The sets of each size that single scores choose, and those that removals one after another lead to."""
    whole = Plan.identity(stack.depth)
    scores = turning(stack, [text])
    effects = skip_effects(evaluator, _within(stack.depth, stack.depth))
    for size in sizes:
        for plan in one_shot_plans(_within(stack.depth, stack.depth - size), scores, effects).values():
            yield ArmPlan("skip", "set", size, plan)
    plan = whole
    for size in range(1, max(sizes) + 1):
        smaller = [edits.skip(plan, layer) for layer in plan.order()]
        losses = mean_losses(evaluator, smaller, plan)
        plan = min(losses, key=losses.__getitem__)
        if size in sizes:
            yield ArmPlan("skip", "set", size, plan)


def least(plans: Sequence[ArmPlan], losses: Mapping[Plan, float]) -> list[ArmPlan]:
    """Of every kind and size the plan that loses least; a plan that is the best of several kinds stands once."""
    best: dict[tuple[str, str, int], ArmPlan] = {}
    for each in plans:
        key = (each.arm, each.kind, each.size)
        if key not in best or losses[each.plan] < losses[best[key].plan]:
            best[key] = each
    once: dict[Plan, ArmPlan] = {}
    for each in best.values():
        once.setdefault(each.plan, each)
    return list(once.values())


def _within(depth: int, limit: int) -> Space:
    return Space(depth, ("drop",), lambda plan: float(len(plan.steps())), float(limit))
