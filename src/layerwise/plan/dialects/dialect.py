"""Which form a text is in, and the recipe that it holds."""

from __future__ import annotations

import re
from typing import Literal, TypeAlias, get_args

from layerwise.plan.dialects.mergekit_reader import MergeRecipe, read_mergekit
from layerwise.plan.dialects.rys import is_rys, read_rys
from layerwise.plan.plan import Plan

Dialect: TypeAlias = Literal["mergekit", "rys", "text"]

DIALECTS: tuple[Dialect, ...] = get_args(Dialect)
"""mergekit's YAML, a string of RYS, and the plan language."""

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
