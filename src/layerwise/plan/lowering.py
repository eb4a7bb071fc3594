"""The lowering of a plan: one flat list of steps, with all repeats unrolled, which every executor follows.

The first step of a group's first branch says that the group opens, the last step of each branch that it closes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

from layerwise.plan.plan import Block, Group, Plan, Reduction, Stage, Visit
from layerwise.plan.sublayer import Sublayer, named

Close: TypeAlias = Reduction | None


@dataclass(frozen=True, slots=True)
class Step:
    """One layer evaluation of an unrolled plan, and the groups that open before it and close after it.

    An executor keeps the running state `x` and a stack of frames (base, outputs). For each step it

    1. pushes `opens` frames, each with base = x and no outputs;
    2. sets x = layer(x), or x + branch(x) where `sublayer` names one branch of the layer; the layer is that of the
       model that `source` names, or of the model at hand;
    3. for each close, innermost first, appends x to the outputs of the top frame. If the close is `None`, the
       next branch begins: x = base. If it is a `Reduction`, the group is done: x = merge(base, outputs), and the
       frame goes.
    """

    layer: int
    opens: int = 0
    closes: tuple[Close, ...] = ()
    sublayer: Sublayer | None = None
    source: str | None = None

    @property
    def name(self) -> str:
        """What runs, as a plan's text has it: `12`, `12.attn` for one half, `a:12` for a layer of another model."""
        return named(self.layer, self.sublayer, self.source)


def lower(plan: Plan) -> list[Step]:
    """The steps of a plan; `Plan.steps` is this as a tuple."""
    steps: list[Step] = []
    for stage in plan.stages:
        match stage:
            case Visit():
                once = [Step(stage.layer, sublayer=stage.sublayer, source=stage.source)]
            case Block():
                once = lower(stage.plan)
            case Group():
                once = _unroll_group(stage)
        steps += once * stage.times
    return steps


def _unroll_group(group: Group) -> list[Step]:
    steps: list[Step] = []
    for branch in group.branches:
        inside = lower(branch)
        inside[-1] = replace(inside[-1], closes=(*inside[-1].closes, None))
        steps += inside
    steps[0] = replace(steps[0], opens=steps[0].opens + 1)
    steps[-1] = replace(steps[-1], closes=(*steps[-1].closes[:-1], group.merge))
    return steps


# -- cost ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a plan, known before any model runs it.

    Compute is layer `evaluations`; latency on enough machines is sequential `stages` (a group counts its longest
    branch); memory is `weights`, the distinct layers (layer 3 of two models is two); generation needs a KV cache slot
    of `slots` per evaluation. A half of a layer counts as a whole one, so these numbers are upper bounds.
    """

    evaluations: int
    stages: int
    weights: int
    slots: int


def count_stages(part: Plan | Stage) -> int:
    """Return the number of sequential stages: a group counts its longest branch."""
    match part:
        case Plan():
            return sum(map(count_stages, part.stages))
        case Visit():
            return part.times
        case Block():
            return part.times * count_stages(part.plan)
        case Group():
            return part.times * max(map(count_stages, part.branches))
