"""Plan formats of other tools: mergekit's YAML and the tensor type file of llama-quantize."""

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
"""mergekit's YAML, llama-quantize's tensor type file (write-only), and the plan language."""

_KEY = re.compile(r"^\s*(\{|---|[A-Za-z_]\w*\s*:(\s|$))", re.MULTILINE)


def read(text: str) -> MergeRecipe:
    """Parse mergekit's YAML or the plan language; raise `PlanError` if the text is neither.

    >>> str(read("0-3 6 7").plan)
    '0-3 6 7'
    """
    return read_mergekit(text) if _KEY.search(text) else MergeRecipe(Plan.parse(text.strip()))
