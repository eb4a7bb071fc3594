"""The algebra of plans: values, their text, their cost, their wiring, edits of them and families of them.

    plan        Plan, Visit, Group, Block, Merge, Step: the value, and its one lowering
    grammar     the plan language: text to plan and back
    cost        layer evaluations, sequential stages, weights, KV slots
    wiring      the matrix of what each step reads
    edits       skip, swap, reverse, repeat, parallel, ...: from a plan to a new plan

Standard library only: no torch, no model.
"""

from __future__ import annotations

from layerwise.plan import edits
from layerwise.plan.cost import Cost
from layerwise.plan.grammar import parse, write
from layerwise.plan.plan import Block, Close, Group, Merge, Plan, Stage, Step, Visit
from layerwise.plan.wiring import Matrix

__all__ = [
    "Block",
    "Close",
    "Cost",
    "Group",
    "Matrix",
    "Merge",
    "Plan",
    "Stage",
    "Step",
    "Visit",
    "edits",
    "parse",
    "write",
]
