"""Plans as other tools write them: mergekit's YAML in and out, the file of types of llama-quantize out.

    sequence          plans that run one layer after another, which is all that mergekit can say
    located           YAML of which every value knows its line
    mergekit          YAML of merge method `passthrough` to a MergeRecipe: a plan, and where each of its models lies;
                      and back
    tensor_types      layers at types of GGUF to the file that llama-quantize reads with --tensor-type-file

What a form cannot say is refused with the line, or the stage of the plan, and with what to write instead. The standard
library and yaml only: no torch, no model.
"""

from __future__ import annotations

import re
from typing import Literal, TypeAlias, get_args

from layerwise.plan.dialects.mergekit import MergeRecipe, read_mergekit, write_mergekit
from layerwise.plan.dialects.sequence import sequential, write_tensor_types
from layerwise.plan.plan import Plan

__all__ = [
    "DIALECTS",
    "MergeRecipe",
    "read",
    "read_mergekit",
    "sequential",
    "write_mergekit",
    "write_tensor_types",
]

Dialect: TypeAlias = Literal["mergekit", "tensor-types", "text"]

DIALECTS: tuple[Dialect, ...] = get_args(Dialect)
"""mergekit's YAML, llama-quantize's file of types (written and not read), and the plan language."""

_KEY = re.compile(r"^\s*(\{|---|[A-Za-z_]\w*\s*:(\s|$))", re.MULTILINE)


def read(text: str) -> MergeRecipe:
    """Return the recipe of a text in mergekit's YAML or in the plan language. Raises `PlanError` if it is neither.

    >>> str(read("0-3 6 7").plan)
    '0-3 6 7'
    """
    return read_mergekit(text) if _KEY.search(text) else MergeRecipe(Plan.parse(text.strip()))
