"""The algebra of plans: values, their text, their cost, their wiring, edits of them and families of them.

    plan        Plan, Visit, Group, Block, Merge: the value
    part        Part: the two halves of a layer
    source      the names of models, where a plan takes layers from several
    limits      what no plan may be, of any model
    steps       its lowering: one flat list of Step, which every executor follows
    grammar     the plan language: text to plan and back
    cost        layer evaluations, sequential stages, weights, KV slots
    wiring      the matrix of what each step reads
    edges       a learned wiring, frozen: what each layer reads of all earlier states, as a sparse value
    edits       skip, swap, reverse, repeat, parallel, ...: from a plan to a new plan
    samplers    from chance to the plan of one pass: `Shuffle`, `Drop`, `Failout`, and `Draws` that ties one to a seed
    keeping     which layers are kept when there must be fewer
    families    from a depth to the plans of one study: `painters` (the published grid), `kendall`, ...
    growth      training in phases: which layers learn when, what that costs, and how it is told
    explain     a plan in words
    picture     its wiring as text

Standard library only: no torch, no model.
"""

from __future__ import annotations

from layerwise.plan import edits, families, growth, samplers
from layerwise.plan.cost import Cost
from layerwise.plan.edges import Edge, Edges
from layerwise.plan.families import FAMILIES, family
from layerwise.plan.grammar import parse, write
from layerwise.plan.member import Member
from layerwise.plan.part import PARTS, Part
from layerwise.plan.plan import Block, Group, Merge, Plan, Stage, Visit
from layerwise.plan.steps import Close, Step
from layerwise.plan.wiring import Matrix

__all__ = [
    "FAMILIES",
    "PARTS",
    "Block",
    "Close",
    "Cost",
    "Edge",
    "Edges",
    "Group",
    "Matrix",
    "Member",
    "Merge",
    "Part",
    "Plan",
    "Stage",
    "Step",
    "Visit",
    "edits",
    "families",
    "family",
    "growth",
    "parse",
    "samplers",
    "write",
]
