"""Plans as other tools write them: mergekit's YAML and the strings of RYS, in and out.

    sequence          plans that run one layer after another, which is all that the other forms can say
    located           YAML of which every value knows its line
    mergekit          YAML of merge method `passthrough` to a MergeRecipe: a plan, and where each of its models lies;
                      and back
    rys               `layers:0,1,2`, `blocks:30,34` and pairs `(30, 34)` to a plan, and back
    tensor_types      layers at types of GGUF to the file that llama-quantize reads with --tensor-type-file

What a form cannot say is refused with the line, or the stage of the plan, and with what to write instead. The standard
library and yaml only: no torch, no model.
"""

from __future__ import annotations

import re
from typing import Literal, TypeAlias, get_args

from layerwise.plan.dialects.mergekit import MergeRecipe, read_mergekit, write_mergekit
from layerwise.plan.dialects.rys import is_rys, read_rys, write_rys
from layerwise.plan.dialects.sequence import sequential
from layerwise.plan.dialects.tensor_types import write_tensor_types
from layerwise.plan.plan import Plan

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
    "write_tensor_types",
]

Dialect: TypeAlias = Literal["mergekit", "rys", "tensor-types", "text"]

DIALECTS: tuple[Dialect, ...] = get_args(Dialect)
"""mergekit's YAML, a string of RYS, llama-quantize's file of types (written and not read), and the plan language."""

_KEY = re.compile(r"^\s*(\{|---|[A-Za-z_]\w*\s*:(\s|$))", re.MULTILINE)


def dialect_of(text: str) -> Dialect:
    """The form of a text, by how it looks.

    >>> dialect_of("slices:\\n- sources: []"), dialect_of("blocks:30,34"), dialect_of("a:0-3 b:4")
    ('mergekit', 'rys', 'text')
    """
    if is_rys(text):
        return "rys"
    return "mergekit" if _KEY.search(text) else "text"


def read(text: str, depth: int | None = None) -> MergeRecipe:
    """The recipe of a text in any of the forms; `depth` is that of the model, which blocks of RYS need.

    Raises `PlanError` in the words of the form that the text is in.

    >>> str(read("blocks:3,6", depth=8).plan), str(read("0-3 6 7").plan)
    ('0-5 3-7', '0-3 6 7')
    """
    dialect = dialect_of(text)
    if dialect == "mergekit":
        return read_mergekit(text)
    return MergeRecipe(read_rys(text, depth) if dialect == "rys" else Plan.parse(text.strip()))
