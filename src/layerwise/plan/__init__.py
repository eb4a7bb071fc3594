"""The algebra of plans: values, their text, their cost, their wiring, edits of them and families of them.

    plan            Plan, Visit, Group, Block, Reduction: the value
    sublayer        Part: the two halves of a layer
    checks          what no plan may be, of any model; how models are named, where a plan takes layers from several
    quantised       the types of GGUF at which a layer may run, and what refuses such plans
    lowering        a plan as one flat list of Step, which every executor follows, and what it costs
    grammar         the plan language: text to plan and back
    wiring          the matrix of what each step reads, and its picture as text
    layer_weights   a learned wiring, frozen: what each layer reads of all earlier states, as a sparse value
    edits           skip, swap, reverse, repeat, parallel, ...: from a plan to a new plan
    samplers        from chance to the plan of one pass: `Shuffle`, `Drop`, `Failout`; `SeededSampler` has its seed;
                    which layers are kept when there must be fewer, and which lie on which node
    families        from a depth to the plans of one study: `painters` (the published grid), ...
    explain         a plan in words
    dialects        plans as other tools write them
    schedule        growth training as a value: which layers learn when

Standard library only: no torch, no model.
"""

from __future__ import annotations

from layerwise.plan import edits, families, samplers
from layerwise.plan.families import FAMILIES, family
from layerwise.plan.grammar import parse, write
from layerwise.plan.layer_weights import Edge, LayerWeights
from layerwise.plan.lowering import Close, Cost, Step, cost, lower
from layerwise.plan.painters import Member
from layerwise.plan.plan import Block, Group, Plan, Reduction, Stage, Visit
from layerwise.plan.sublayer import SUBLAYERS, Sublayer
from layerwise.plan.wiring import Matrix, matrix, picture

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
    "cost",
    "edits",
    "families",
    "family",
    "lower",
    "matrix",
    "parse",
    "picture",
    "samplers",
    "write",
]
