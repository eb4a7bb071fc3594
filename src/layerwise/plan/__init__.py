"""Layer plans: parsing, edits, families, cost and wiring. Standard library only."""

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
