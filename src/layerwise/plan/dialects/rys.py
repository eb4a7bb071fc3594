"""The strings in which RYS ("repeat yourself", dnhkng/RYS) says which layers run.

    layers:0,1,2,2,3          every layer, in order
    blocks:30,34              layers 30 to 33 once more, directly behind 33: 0-33 30-(L-1) of a model of L layers
    blocks:31,34;43,45        one block after the other
    30,34   (30, 34)          a pair is a block
    (0, 0)                    the model as trained

A block (i, j) repeats the layers i to j - 1. The first one runs layers 0 to j - 1 and then i to the last; each further
one is inserted behind the last visit of layer j - 1 so far. Blocks need the depth of the model, and `layers:` does not.
A list of at least three numbers without its word is read as layers.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import NoReturn

from layerwise.errors import PlanError
from layerwise.plan.checks import LAYER_LIMIT, STEP_LIMIT, check_depth
from layerwise.plan.dialects.sequence import ascending_runs, sequential
from layerwise.plan.plan import Plan

FORM = "an RYS string"

_WORD = re.compile(r"\s*(layers|blocks)\s*:", re.IGNORECASE | re.ASCII)
_PAIR = re.compile(r"\s*(?:\(\s*(\d{1,9})\s*,\s*(\d{1,9})\s*\)|(\d{1,9})\s*,\s*(\d{1,9}))\s*", re.ASCII)
_LAYER = re.compile(r"\s*(\d{1,9})\s*", re.ASCII)


def is_rys(text: str) -> bool:
    """Whether a text is meant as such a string: it begins with a word and a colon, or is numbers and commas.

    >>> [is_rys(text) for text in ("blocks:3,6", "(3, 6)", "0,1,2", "0-2 5", "(3|6)")]
    [True, True, True, False, False]
    """
    return _WORD.match(text) is not None or ("," in text and re.fullmatch(r"[0-9\s,;()]*", text) is not None)


def read_rys(text: str, depth: int | None = None) -> Plan:
    """The plan of a string, for a model of `depth` layers. Raises `PlanError` that points at the character.

    >>> read_rys("blocks:3,6;4,6", depth=8).order()
    (0, 1, 2, 3, 4, 5, 3, 4, 5, 4, 5, 6, 7)
    >>> read_rys("layers:0,1,1,2")
    Plan('0 1 1 2')
    """
    if depth is not None:
        check_depth(depth)
    kind, start = _kind(text)
    plan = _layers(text, start) if kind == "layers" else _repeated(text, _blocks(text, start, depth), depth)
    if depth is not None:
        plan.check(depth)
    return plan


def needs_depth(text: str) -> bool:
    """Whether a string repeats blocks of a model, whose depth then matters. Raises `PlanError` as `read_rys` does.

    >>> needs_depth("blocks:3,6"), needs_depth("layers:0,1")
    (True, False)
    """
    kind, start = _kind(text)
    if kind == "blocks":
        _blocks(text, start, None)
    return kind == "blocks"


def write_rys(plan: Plan | str, depth: int | None = None) -> str:
    """The string of a plan: its blocks where it only repeats layers of a model of `depth` layers, or its list.

    Raises `PlanError` that names the stage where the plan does not run whole layers one after another, and for layers
    of several models.

    >>> write_rys("0-5 3-7", depth=8), write_rys("0-5 3-7"), write_rys("0-2 4-7", depth=8)
    ('blocks:3,6', 'layers:0,1,2,3,4,5,3,4,5,6,7', 'layers:0,1,2,4,5,6,7')
    """
    flat = sequential(plan, FORM)
    if flat.sources():
        raise PlanError(
            f"{FORM} is about one model, and the plan names {', '.join(sorted(flat.sources()))}: leave the "
            "names out, or write mergekit's YAML"
        )
    if depth is not None:
        flat.check(depth)
        blocks = _as_blocks(flat, depth)
        if blocks:
            return "blocks:" + ";".join(f"{start},{stop}" for start, stop in blocks)
    return "layers:" + ",".join(map(str, flat.order()))


def _kind(text: str) -> tuple[str, int]:
    """Whether a text lists `layers` or `blocks`, and where its numbers begin."""
    word = _WORD.match(text)
    if word is not None:
        return word[1].lower(), word.end()
    return "layers" if text.count(",") > 1 and not re.search("[();]", text) else "blocks", 0


def _as_blocks(plan: Plan, depth: int) -> list[tuple[int, int]]:
    """The blocks that a plan repeats, if that is all it does to the model; else none.

    Its runs of layers that go up must begin with layer 0, end with the last one, and each begin within the one before.
    """
    ranges = [(start, stop) for _, start, stop in ascending_runs(plan)]
    if ranges[0][0] != 0 or ranges[-1][1] != depth:
        return []
    blocks = [(start, stop) for (_, stop), (start, _) in pairwise(ranges)]
    return blocks if all(start < stop for start, stop in blocks) else []


def _layers(text: str, start: int) -> Plan:
    layers: list[int] = []
    at = start
    while True:
        number = _LAYER.match(text, at)
        if number is None:
            _refuse("a list of layers is numbers with commas, as in layers:0,1,2", text, at)
        layer = int(number[1])
        if layer >= LAYER_LIMIT:
            _refuse(f"layers are numbered from 0 to {LAYER_LIMIT - 1}", text, number.start(1))
        if len(layers) == STEP_LIMIT:
            _refuse(f"the plan would run more than {STEP_LIMIT:,} layers one after another", text, at)
        layers.append(layer)
        at = number.end()
        if at == len(text):
            return Plan.of(layers)
        if text[at] != ",":
            _refuse("layers are separated by commas, as in layers:0,1,2", text, at)
        at += 1
        if not text[at:].strip():
            return Plan.of(layers)


def _blocks(text: str, start: int, depth: int | None) -> list[tuple[int, int]]:
    blocks: list[tuple[int, int]] = []
    at = start
    while True:
        pair = _PAIR.match(text, at)
        if pair is None:
            _refuse("a block is a pair of layers, as in blocks:30,34, and more of them follow a semicolon", text, at)
        first, stop = (int(end) for end in pair.groups() if end is not None)
        if (first, stop) != (0, 0) and first >= stop:
            _refuse(
                f"a block (i, j) repeats layers i to j - 1, so i is below j, and {first} is not below {stop}", text, at
            )
        most = LAYER_LIMIT if depth is None else depth
        if stop > most:
            _refuse(f"a block of a model of {most} layers ends at {most} or before, not at {stop}", text, at)
        blocks.append((first, stop))
        at = pair.end()
        if not text[at:].strip("; \t\r\n"):
            return blocks
        if text[at] != ";":
            _refuse("blocks are separated by semicolons, as in blocks:31,34;43,45", text, at)
        at += 1


def _repeated(text: str, blocks: list[tuple[int, int]], depth: int | None) -> Plan:
    if depth is None:
        raise PlanError(
            f"{text.strip()[:60]} repeats layers of a model, so its depth is needed: name the model, or its number of "
            "layers with --depth"
        )
    order = list(range(depth))
    for start, stop in blocks:
        if (start, stop) == (0, 0):
            continue
        behind = len(order) - order[::-1].index(stop - 1)
        order[behind:behind] = range(start, stop)
        if len(order) > STEP_LIMIT:
            raise PlanError(f"the plan would run more than {STEP_LIMIT:,} layers one after another; repeat less")
    return Plan.of(order)


def _refuse(message: str, text: str, position: int) -> NoReturn:
    raise PlanError(message, text=text, position=position)
