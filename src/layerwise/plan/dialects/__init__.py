"""Plans as other tools write them: mergekit's YAML and the strings of RYS, in and out.

    sequence          plans that run one layer after another, which is all that the other forms can say
    located           YAML of which every value knows its line
    mergekit_reader   YAML of merge method `passthrough` to a MergeRecipe: a plan, and where each of its models lies
    mergekit_writer   and back
    rys               `layers:0,1,2`, `blocks:30,34` and pairs `(30, 34)` to a plan, and back
    dialect           which of the forms a text is in, and its recipe

What a form cannot say is refused with the line, or the stage of the plan, and with what to write instead. The standard
library and yaml only: no torch, no model.
"""

from __future__ import annotations

from layerwise.plan.dialects.dialect import DIALECTS, dialect_of, read
from layerwise.plan.dialects.mergekit_reader import MergeRecipe, read_mergekit
from layerwise.plan.dialects.mergekit_writer import write_mergekit
from layerwise.plan.dialects.rys import read_rys, write_rys
from layerwise.plan.dialects.sequence import sequential

__all__ = [
    "DIALECTS",
    "MergeRecipe",
    "dialect_of",
    "read",
    "read_mergekit",
    "read_rys",
    "sequential",
    "write_mergekit",
    "write_rys",
]
