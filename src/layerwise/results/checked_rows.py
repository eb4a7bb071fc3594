"""Rows that can be what they say: every cell of its type, every number finite, every count possible.

The store checks this of rows that are written and of rows that are read: a table may have been edited, or made by
another program, since layerwise wrote it.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import fields
from functools import cache
from types import NoneType
from typing import Any, TypeVar, cast, get_type_hints

from layerwise.results.rows import Loss, Note, PlanRecord, Score, described

Row = TypeVar("Row", Loss, Score, PlanRecord, Note)

_SCORED = ("value", "low", "high", "p", "p_adjusted", "mde", "amount")
_WORDS = {str: "a text", int: "a whole number", float: "a number", bytes: "raw bytes", NoneType: "nothing"}


def row_of(kind: type[Row], cells: Sequence[object]) -> Row:
    """The row of `cells` as a table holds them. Raises `ValueError` that says which cell cannot be what it is."""
    types = tuple(map(type, cells))
    if types not in _known(cast(Hashable, kind)):
        _check_types(kind, cells)
        _known(cast(Hashable, kind)).add(types)
    row: Row = cast(Any, kind)(*cells)
    wrong = impossible(row)
    if wrong is not None:
        raise ValueError(f"{_named(row)} {wrong}")
    return row


def impossible(row: Loss | Score | PlanRecord | Note) -> str | None:
    """Why the numbers of a row cannot be: what the row has, in words; `None` where they can."""
    match row:
        case Loss(nll=nll, tokens=tokens, hits=hits):
            if not math.isfinite(nll):
                return f"has a loss of {nll} nats"
            if not 0 <= hits <= tokens or tokens < 1:
                return f"has {hits} hits among {tokens} tokens"
        case Score():
            for name in _SCORED:
                number = getattr(row, name)
                if number is not None and not math.isfinite(number):
                    return f"has {name} = {number}"
            return _negative(row, ("documents", "tokens", "layer", "other"))
        case PlanRecord():
            return _negative(row, ("affected", "evaluations", "stages", "weights", "slots"))
    return None


def _negative(row: Score | PlanRecord, names: Iterable[str]) -> str | None:
    for name in names:
        count = getattr(row, name)
        if count is not None and count < 0:
            return f"has {name} = {count}"
    return None


@cache
def _known(kind: Any) -> set[tuple[type, ...]]:
    """The types of cells that rows of this kind were seen to have, so that most rows cost one look."""
    return set()


def _check_types(kind: type[Any], cells: Sequence[object]) -> None:
    hints = get_type_hints(kind)
    for item, value in zip(fields(kind), cells, strict=True):
        wanted: tuple[type, ...] = getattr(hints[item.name], "__args__", (hints[item.name],))
        if type(value) not in wanted:
            words = " or ".join(_WORDS[each] for each in wanted)
            raise ValueError(f"{item.name} of a {kind.__name__} is {_WORDS[type(value)]} where {words} belongs")


def _named(row: Loss | Score | PlanRecord | Note) -> str:
    match row:
        case Loss(plan, task, document, window):
            return f"plan {_short(plan)} on window {window} of document {_short(document)} (task {_short(task)})"
        case Score(task=task, metric=metric):
            return f"the score {_short(metric)} of {described(row)[:80]} (task {_short(task)})"
        case PlanRecord(plan):
            return f"the record of plan {_short(plan)}"
        case _:
            return "a note"


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:57]}...")
