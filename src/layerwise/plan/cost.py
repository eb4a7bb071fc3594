"""What a plan costs before any model runs it, in the four currencies that matter.

Compute is layer evaluations; latency on enough machines is sequential stages (the branches of a group count
as the longest of them, so the Painters' Parallel of M layers is one stage); memory is the distinct layers
whose weights must be there (layer 3 of two models is two of them); and generation needs one KV slot per
evaluation, because a layer that runs twice attends to two histories. A half of a layer, `12.attn`, counts as a
whole one in all four: its block is called with the other branch silenced, so these numbers are upper bounds.
"""

from __future__ import annotations

from dataclasses import dataclass

from layerwise.plan.plan import Block, Group, Plan, Stage, Visit


@dataclass(frozen=True, slots=True)
class Cost:
    """`evaluations` of layers, `stages` on the critical path, `weights` (distinct layers), KV `slots`."""

    evaluations: int
    stages: int
    weights: int
    slots: int


def cost(plan: Plan | str) -> Cost:
    """The cost of a plan, without unrolling it.

    >>> cost(Plan.parse("0-13 (14|15|16|17)*3 18-31"))
    Cost(evaluations=40, stages=31, weights=32, slots=40)
    """
    plan = Plan.parse(plan)
    return Cost(plan.evaluations, _stages(plan), len(plan.weights()), plan.evaluations)


def _stages(plan: Plan) -> int:
    return sum(stage.times * _stages_once(stage) for stage in plan.stages)


def _stages_once(stage: Stage) -> int:
    match stage:
        case Visit():
            return 1
        case Block():
            return _stages(stage.plan)
        case Group():
            return max(map(_stages, stage.branches))
