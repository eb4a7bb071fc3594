"""Parse and write the plan language.

    14, 0-13, 17-14     layer 14, layers 0 to 13, layers 17 down to 14
    12.attn, 8-11.mlp   only the attention of layer 12, only the MLPs of layers 8 to 11
    a:14, a:0-13        layers of the model named a
    Q4_0:14             layer 14 quantized to a GGUF type
    15*4, [45-51]*2     one layer four times in a row, and a block (a plan as one stage) twice in a row
    (14|15 16):sum*3    a group: branches that read the same hidden state; their outputs are merged by `:mean` (the
                        default), `:sum` or `:gain=2`; here three times in a row

`parse(write(plan)) == plan`. Three or more consecutive layers of one model and sublayer are written as a range.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn, TypeVar

from layerwise.errors import PlanError, near_matches
from layerwise.plan.checks import (
    LAYER_LIMIT,
    NESTING_LIMIT,
    SOURCE,
    STEP_LIMIT,
    SUBLAYERS,
    Sublayer,
    check_source,
    layer_name,
)
from layerwise.plan.plan import Block, Group, Plan, Reduction, Stage, Visit

_Built = TypeVar("_Built")

_SPACES = " \t\r\n"
_WORD = re.compile(r"[A-Za-z_]+")
_GAIN = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_ENDS = ("", "|", ")", "]")
_MAX_DIGITS = len(str(LAYER_LIMIT))
_MAX_GAIN_LENGTH = 30
_MIN_RANGE = 3

_EXAMPLE = "for example 0-13 (14|15) 18-31"
_SEPARATOR = "layers must be separated by spaces, as in 0 1 2"
_HYPHEN = "a range must use a plain hyphen, as in 0-13"
_BRACKETS = "groups are written ( | ) and blocks [ ]"
_STRAY = {
    ",": _SEPARATOR,
    ";": _SEPARATOR,
    "-": "layers count from 0, and a range has no spaces, as in 0-13",
    "–": _HYPHEN,
    "—": _HYPHEN,
    "−": _HYPHEN,
    "×": "a repeat must use an asterisk, as in 15*4",
    "*": "a repeat must directly follow the layer, group or block it repeats, as in 15*4",
    ":": "a merge rule must directly follow its group, as in (14|15):sum",
    ".": "a sublayer must directly follow its layer: 12.attn, (12.attn|13.attn), 12.attn 12.mlp",
    "{": _BRACKETS,
    "}": _BRACKETS,
    "|": "branches must be inside a group, as in (14|15)",
    ")": "this ) has no matching (; a group is written (14|15)",
    "]": "this ] has no matching [; a block is written [14 15]*2",
}


def parse(text: str) -> Plan:
    """Parse the text of a plan, or raise `PlanError` with a mark at the first invalid character.

    >>> parse("0-2 (3|4 5):sum 6").order()
    (0, 1, 2, 3, 4, 5, 6)
    >>> parse("0-3*2")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    layerwise.errors.PlanError: 0-3*k is ambiguous: write [0-3]*k to run the range k times, or ...
      0-3*2
         ^
    """
    if not isinstance(text, str):
        raise PlanError(f"the text of a plan must be a str, {_EXAMPLE}, got {type(text).__name__}")
    reader = _Reader(text)
    plan = reader.plan("a plan must run at least one layer")
    if reader.at < len(text):
        reader.refuse_character()
    return plan


def write(plan: Plan) -> str:
    """Return the text of a plan.

    >>> write(Plan.of([0, 1, 2, 3, 5, 6, 9, 8, 7]))
    '0-3 5 6 9-7'
    """
    return " ".join(_write_stage(run[0]) if len(run) == 1 else _write_range(run) for run in runs(plan.stages))


def runs(stages: tuple[Stage, ...]) -> Iterator[tuple[Stage, ...]]:
    at = 0
    while at < len(stages):
        length = _run_length(stages, at)
        length = length if length >= _MIN_RANGE else 1
        yield stages[at : at + length]
        at += length


def _run_length(stages: tuple[Stage, ...], start: int) -> int:
    direction = 0
    at = start
    while at + 1 < len(stages):
        left, right = stages[at], stages[at + 1]
        if not (isinstance(left, Visit) and isinstance(right, Visit) and left.times == right.times == 1):
            break
        if (left.sublayer, left.source) != (right.sublayer, right.source):
            break
        step = right.layer - left.layer
        if abs(step) != 1 or direction not in (0, step):
            break
        direction = step
        at += 1
    return at - start + 1


def _write_range(run: Sequence[Stage]) -> str:
    first, *_, last = (stage for stage in run if isinstance(stage, Visit))
    return f"{layer_name(first.layer, None, first.source)}-{layer_name(last.layer, last.sublayer)}"


def _write_stage(stage: Stage) -> str:
    match stage:
        case Visit():
            text = layer_name(stage.layer, stage.sublayer, stage.source)
        case Block():
            text = f"[{write(stage.plan)}]"
        case Group():
            rule = "" if stage.merge == Reduction("mean") else f":{stage.merge}"
            text = f"({'|'.join(map(write, stage.branches))}){rule}"
    return text if stage.times == 1 else f"{text}*{stage.times}"


class _Reader:
    """Recursive-descent parser. It counts the layers of a range before it builds them, as `STEP_LIMIT` bounds them."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.open = 0
        self.visits = 0

    def plan(self, if_empty: str) -> Plan:
        start = self.at
        stages: list[Stage] = []
        self.spaces()
        while self.peek() not in _ENDS:
            self.stage(stages)
            end = self.at
            self.spaces()
            if self.at == end and self.peek() not in _ENDS:
                self.refuse_missing_space()
        if not stages:
            self.refuse(f"{if_empty}: write its layers, {_EXAMPLE}", self.at)
        return self.build(lambda: Plan(tuple(stages)), start)

    def stage(self, stages: list[Stage]) -> None:
        match self.peek():
            case "(":
                stages.append(self.group())
            case "[":
                stages.append(self.block())
            case _ if self.digit() or self.letter():
                stages.extend(self.visit())
            case _:
                self.refuse_character()

    def visit(self) -> list[Visit]:
        start = self.at
        source = self.source()
        first = self.layer()
        if self.peek() == "-":
            return self.range_from(first, source, start)
        sublayer = self.sublayer()
        times = self.times()
        self.count(1, start)
        return [self.build(lambda: Visit(first, times, sublayer, source), start)]

    def source(self) -> str | None:
        start = self.at
        name = SOURCE.match(self.text, start)
        if name is None:
            return None
        if self.text[name.end() : name.end() + 1] != ":":
            self.refuse("a model name must be followed by a colon and a layer, as in a:0-3", start)
        self.build(lambda: check_source(name[0]), start)
        self.at = name.end() + 1
        if not self.digit():
            self.refuse("a model name must directly precede each of its layers, as in a:0-3 or (a:4|a:5)", self.at)
        return name[0]

    def range_from(self, first: int, source: str | None, start: int) -> list[Visit]:
        self.at += 1
        if self.letter():
            self.refuse("a range must name its model once, in front, as in a:0-13", self.at)
        if not self.digit():
            self.refuse("a range must end with a layer, as in 0-13", self.at)
        last = self.layer()
        sublayer = self.sublayer()
        if self.peek() == "*":
            text = f"{layer_name(first, None, source)}-{layer_name(last, sublayer)}"
            single = layer_name(last, sublayer, source)
            self.refuse(
                f"{text}*k is ambiguous: write [{text}]*k to run the range k times, or {single}*k to repeat its last "
                "layer",
                self.at,
            )
        self.count(abs(last - first) + 1, start)
        step = 1 if last >= first else -1
        return [Visit(layer, sublayer=sublayer, source=source) for layer in range(first, last + step, step)]

    def sublayer(self) -> Sublayer | None:
        if self.peek() != ".":
            return None
        self.at += 1
        start = self.at
        word = _WORD.match(self.text, start)
        if word is None:
            integer = "a layer must be an integer, such as 12, and " if self.digit() else ""
            examples = " or ".join(f"12.{sublayer}" for sublayer in SUBLAYERS)
            self.refuse(f"{integer}a sublayer must be named, as in {examples}", start)
        name = word[0]
        if name not in SUBLAYERS:
            self.refuse(f"unknown sublayer {name[:30]!r}; {near_matches(name[:30], SUBLAYERS)}", start)
        self.at = word.end()
        return SUBLAYERS[SUBLAYERS.index(name)]

    def group(self) -> Group:
        start = self.descend()
        branches = [self.plan("a branch must run at least one layer")]
        while self.peek() == "|":
            self.at += 1
            branches.append(self.plan("a branch must run at least one layer"))
        self.ascend(start, ")")
        merge = self.merge()
        times = self.times()
        return self.build(lambda: Group(tuple(branches), merge, times), start)

    def block(self) -> Block:
        start = self.descend()
        plan = self.plan("a block must run at least one layer")
        self.ascend(start, "]")
        times = self.times()
        return self.build(lambda: Block(plan, times), start)

    def merge(self) -> Reduction:
        start = self.at
        if self.peek() != ":":
            return Reduction("mean")
        self.at += 1
        word = _WORD.match(self.text, self.at)
        rule = word[0] if word else ""
        if rule not in ("mean", "sum", "gain"):
            self.refuse("a merge rule must be :mean, :sum or :gain=2", self.at)
        self.at += len(rule)
        if rule != "gain":
            return Reduction("mean" if rule == "mean" else "sum")
        number = _GAIN.match(self.text, self.at + 1) if self.peek() == "=" else None
        if number is None:
            self.refuse("a gain must have a number, as in :gain=2 or :gain=0.5", self.at)
        if len(number[0]) > _MAX_GAIN_LENGTH:
            self.refuse(f"a gain must have at most {_MAX_GAIN_LENGTH} characters", self.at + 1)
        self.at = number.end()
        return self.build(lambda: Reduction("gain", float(number[0])), start)

    def times(self) -> int:
        if self.peek() != "*":
            return 1
        self.at += 1
        if not self.digit():
            self.refuse("a repeat must have a count, as in 15*4", self.at)
        start = self.at
        times = self.number()
        if self.peek() == ".":
            self.refuse("a repeat count must be an integer and follow the sublayer, as in 12.attn*2", self.at)
        if times < 1:
            self.refuse("a repeat count must be at least 1; to skip a layer, omit it", start)
        return times

    def layer(self) -> int:
        start = self.at
        layer = self.number()
        if layer >= LAYER_LIMIT:
            self.refuse(f"a layer must be from 0 to {LAYER_LIMIT - 1}", start)
        return layer

    def number(self) -> int:
        start = self.at
        while self.digit():
            self.at += 1
        if self.at - start > _MAX_DIGITS:
            self.refuse(f"a number must have at most {_MAX_DIGITS} digits", start)
        return int(self.text[start : self.at])

    def spaces(self) -> None:
        while self.at < len(self.text) and self.text[self.at] in _SPACES:
            self.at += 1

    def peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def digit(self) -> bool:
        character = self.peek()
        return character.isascii() and character.isdigit()

    def letter(self) -> bool:
        character = self.peek()
        return character.isascii() and character.isalpha()

    def descend(self) -> int:
        start = self.at
        self.open += 1
        if self.open > NESTING_LIMIT:
            self.refuse(f"groups and blocks must be nested at most {NESTING_LIMIT} deep; remove some brackets", start)
        self.at += 1
        return start

    def ascend(self, start: int, closer: str) -> None:
        character = self.peek()
        if character == "":
            self.refuse(f"this {self.text[start]} is never closed; write {closer} where it ends", start)
        if character == "|":
            self.refuse("a | must separate branches of a group ( ), not stages of a block [ ]", self.at)
        if character != closer:
            self.refuse(f"the open {self.text[start]} must be closed with {closer}, got {character}", self.at)
        self.at += 1
        self.open -= 1

    def count(self, visits: int, start: int) -> None:
        self.visits += visits
        if self.visits > STEP_LIMIT:
            self.refuse(f"a plan must run at most {STEP_LIMIT:,} layers in total; use smaller repeat counts", start)

    def build(self, make: Callable[[], _Built], start: int) -> _Built:
        try:
            return make()
        except PlanError as error:
            self.refuse(error.reason, start)

    def refuse_character(self) -> NoReturn:
        character = self.peek()
        if character in _STRAY:
            self.refuse(_STRAY[character], self.at)
        if character.isdigit():
            self.refuse("numbers must use the digits 0-9", self.at)
        if character.isalpha():
            self.refuse("a model name must use the letters a-z, digits, - and _, as in a:0-3", self.at)
        self.refuse(f"{character!r} has no meaning in a plan; write {_EXAMPLE}", self.at)

    def refuse_missing_space(self) -> NoReturn:
        character = self.peek()
        if character in "([" or self.digit() or self.letter():
            self.refuse("stages must be separated by a space, as in 0-13 (14|15) 18-31", self.at)
        if character == "*":
            self.refuse("a stage must have only one repeat count; multiply them, or write [15*4]*2", self.at)
        if character == "-":
            self.refuse("a range must connect two layer numbers, as in 0-13 or 0-13.attn", self.at)
        if character == ":":
            self.refuse("a merge rule must directly follow its group, before the repeat: (14|15):sum*3", self.at)
        self.refuse_character()

    def refuse(self, message: str, position: int) -> NoReturn:
        raise PlanError(message, text=self.text, position=position)
