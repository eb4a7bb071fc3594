"""The algebra of plans: values, their text, their cost, their wiring, edits of them and families of them.

    plan            Plan, Visit, Group, Block, Reduction: the value
    sublayer        Part: the two halves of a layer
    source          the names of models, where a plan takes layers from several
    checks          what no plan may be, of any model
    lowering        a plan as one flat list of Step, which every executor follows
    grammar         the plan language: text to plan and back
    cost            layer evaluations, sequential stages, weights, KV slots
    wiring          the matrix of what each step reads
    layer_weights   a learned wiring, frozen: what each layer reads of all earlier states, as a sparse value
    edits           skip, swap, reverse, repeat, parallel, ...: from a plan to a new plan
    samplers        from chance to the plan of one pass: `Shuffle`, `Drop`, `Failout`; `Draws` ties one to a seed
    layer_subsets   which layers are kept when there must be fewer
    families        from a depth to the plans of one study: `painters` (the published grid), `kendall`, ...
    explain         a plan in words
    picture         its wiring as text

Standard library only: no torch, no model.
"""

from __future__ import annotations

from layerwise.plan import edits, families, samplers
from layerwise.plan.cost import Cost
from layerwise.plan.families import FAMILIES, family
from layerwise.plan.grammar import parse, write
from layerwise.plan.layer_weights import Edge, LayerWeights
from layerwise.plan.lowering import Close, Step
from layerwise.plan.member import Member
from layerwise.plan.plan import Block, Group, Plan, Reduction, Stage, Visit
from layerwise.plan.sublayer import SUBLAYERS, Sublayer
from layerwise.plan.wiring import Matrix

__all__ = [
    "FAMILIES",
    "SUBLAYERS",
    "Block",
    "Close",
    "Cost",
    "Edge",
    "Group",
    "LayerWeights",
    "Matrix",
    "Member",
    "Plan",
    "Reduction",
    "Stage",
    "Step",
    "Sublayer",
    "Visit",
    "edits",
    "families",
    "family",
    "parse",
    "samplers",
    "write",
]
