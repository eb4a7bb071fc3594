"""The algebra of plans: values, their text, their cost, their wiring, edits of them and families of them.

    plan, sublayer, quantized, checks    the value; halves of layers; types of GGUF; what is refused for every model
    grammar, explain, dialects           the plan language; a plan in words; plans as other tools write them
    lowering, wiring, layer_weights      flat steps and their cost; what each step reads; a learned wiring, frozen
    edits, families, painters, samplers  new plans from a plan, from a depth, and at random for each pass
    schedule                             growth training: which layers learn when

Standard library only: no torch, no model.
"""

from __future__ import annotations

from layerwise.plan import edits, families, samplers
from layerwise.plan.checks import SUBLAYERS, Sublayer
from layerwise.plan.families import FAMILIES, family
from layerwise.plan.grammar import parse, write
from layerwise.plan.layer_weights import Edge, EdgeCut, LayerWeights
from layerwise.plan.painters import Member
from layerwise.plan.plan import Block, Close, Cost, Group, Plan, Reduction, Stage, Step, Visit
from layerwise.plan.wiring import Matrix, matrix, picture

__all__ = [
    "FAMILIES",
    "SUBLAYERS",
    "Block",
    "Close",
    "Cost",
    "Edge",
    "EdgeCut",
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
    "matrix",
    "parse",
    "picture",
    "samplers",
    "write",
]
