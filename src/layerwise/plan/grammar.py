"""The plan language: one line of text for any plan, and back.

    N, N-M           layer 14; layers 0-13, or backwards 17-14      N.attn, N.mlp   half of a layer: 12.mlp, 8-11.attn
    stage*k          k times in a row: 15*4, [45-51]*2              name:..         of that model: a:14, a:0-13
    [p]              a block: a plan as one stage                   type:..         quantized to a type of GGUF: Q4_0:14
    (p|q|..):rule*k  branches that read one state, merged by `:mean` (default), `:sum` or `:gain=2`, fed back k times

`parse(write(plan)) == plan`. `write` makes a range of every longest run of three or more single visits that go up, or
down, by one and are of the same half and model; a name is written for every layer or range. So equal plans have equal
texts, and the text can be a key.
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
    named,
)
from layerwise.plan.plan import Block, Group, Plan, Reduction, Stage, Visit

_Built = TypeVar("_Built")

_SPACES = " \t\r\n"
_WORD = re.compile(r"[A-Za-z_]+")
_GAIN = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_ENDS = ("", "|", ")", "]")
_LONGEST_NUMBER = len(str(LAYER_LIMIT))
_LONGEST_GAIN = 30
_SHORTEST_RANGE = 3

_EXAMPLE = "for example 0-13 (14|15) 18-31"
_STRAY = {
    ",": "layers are separated by spaces, as in 0 1 2",
    ";": "layers are separated by spaces, as in 0 1 2",
    "-": "layers count from 0 and a range is written without spaces, as in 0-13",
    "–": "a range is written with a plain hyphen, as in 0-13",
    "—": "a range is written with a plain hyphen, as in 0-13",
    "−": "a range is written with a plain hyphen, as in 0-13",
    "×": "a repeat is written with an asterisk, as in 15*4",
    "*": "a repeat stands directly behind the layer, group or block it repeats, as in 15*4",
    ":": "a merge rule stands directly behind its group, as in (14|15):sum",
    ".": "a half is of one layer and stands directly behind it: 12.attn, (12.attn|13.attn), 12.attn 12.mlp",
    "{": "groups are written ( | ) and blocks [ ]",
    "}": "groups are written ( | ) and blocks [ ]",
    "|": "branches stand in a group, as in (14|15)",
    ")": "there is no group open here; a group is written (14|15)",
    "]": "there is no block open here; a block is written [14 15]*2",
}


def parse(text: str) -> Plan:
    """Read a plan; raises `PlanError` with the position of the first character that cannot be right.

    >>> parse("0-2 (3|4 5):sum 6").order()
    (0, 1, 2, 3, 4, 5, 6)
    >>> parse("0-3*2")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    layerwise.errors.PlanError: 0-3*k could mean two things: write [0-3]*k to run the range k times, or ...
      0-3*2
         ^
    """
    if not isinstance(text, str):
        raise PlanError(f"a plan's text is a str, {_EXAMPLE}; found {type(text).__name__}")
    reader = _Reader(text)
    plan = reader.plan("a plan runs at least one layer")
    if reader.at < len(text):
        reader.stray()
    return plan


def write(plan: Plan) -> str:
    """The one text of a plan.

    >>> write(Plan.of([0, 1, 2, 3, 5, 6, 9, 8, 7]))
    '0-3 5 6 9-7'
    """
    return " ".join(_write_stage(run[0]) if len(run) == 1 else _write_range(run) for run in runs(plan.stages))


def runs(stages: tuple[Stage, ...]) -> Iterator[tuple[Stage, ...]]:
    at = 0
    while at < len(stages):
        length = _run_length(stages, at)
        length = length if length >= _SHORTEST_RANGE else 1
        yield stages[at : at + length]
        at += length


def _run_length(stages: tuple[Stage, ...], start: int) -> int:
    direction = 0
    at = start
    while at + 1 < len(stages):
        here, after = stages[at], stages[at + 1]
        if not (isinstance(here, Visit) and isinstance(after, Visit) and here.times == after.times == 1):
            break
        if (here.sublayer, here.source) != (after.sublayer, after.source):
            break
        step = after.layer - here.layer
        if abs(step) != 1 or direction not in (0, step):
            break
        direction = step
        at += 1
    return at - start + 1


def _write_range(run: Sequence[Stage]) -> str:
    first, *_, last = (stage for stage in run if isinstance(stage, Visit))
    return f"{named(first.layer, None, first.source)}-{named(last.layer, last.sublayer)}"


def _write_stage(stage: Stage) -> str:
    match stage:
        case Visit():
            written = named(stage.layer, stage.sublayer, stage.source)
        case Block():
            written = f"[{write(stage.plan)}]"
        case Group():
            rule = "" if stage.merge == Reduction("mean") else f":{stage.merge}"
            written = f"({'|'.join(map(write, stage.branches))}){rule}"
    return written if stage.times == 1 else f"{written}*{stage.times}"


class _Reader:
    """A position in a text. Each method reads one thing of the grammar from there and moves behind it.

    The work is bounded by the text and by `STEP_LIMIT`: ranges are counted before they are spelled out.
    """

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
                self.run_on()
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
                self.stray()

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
            self.refuse("a name stands before a layer and says whose it is, with a colon, as in a:0-3", start)
        self.build(lambda: check_source(name[0]), start)
        self.at = name.end() + 1
        if not self.digit():
            self.refuse("a name stands directly before each layer it holds for, as in a:0-3 or (a:4|a:5)", self.at)
        return name[0]

    def range_from(self, first: int, source: str | None, start: int) -> list[Visit]:
        self.at += 1
        if self.letter():
            self.refuse("a range is of one model, named once and in front, as in a:0-13", self.at)
        if not self.digit():
            self.refuse("a range ends in a layer, as in 0-13", self.at)
        last = self.layer()
        sublayer = self.sublayer()
        if self.peek() == "*":
            whole = f"{named(first, None, source)}-{named(last, sublayer)}"
            alone = named(last, sublayer, source)
            self.refuse(
                f"{whole}*k could mean two things: write [{whole}]*k to run the range k times, "
                f"or write {alone} on its own, as {alone}*k",
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
            whole = "a layer is a whole number, such as 12, and " if self.digit() else ""
            self.refuse(
                f"{whole}a half of one is named, as in {' or '.join(f'12.{sublayer}' for sublayer in SUBLAYERS)}", start
            )
        name = word[0]
        if name not in SUBLAYERS:
            self.refuse(f"a layer has no half {name[:30]!r}; {near_matches(name[:30], SUBLAYERS)}", start)
        self.at = word.end()
        return SUBLAYERS[SUBLAYERS.index(name)]

    def group(self) -> Group:
        start = self.descend()
        branches = [self.plan("a branch of a group runs at least one layer")]
        while self.peek() == "|":
            self.at += 1
            branches.append(self.plan("a branch of a group runs at least one layer"))
        self.ascend(start, ")")
        merge = self.merge()
        times = self.times()
        return self.build(lambda: Group(tuple(branches), merge, times), start)

    def block(self) -> Block:
        start = self.descend()
        plan = self.plan("a block runs at least one layer")
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
            self.refuse("a merge rule is :mean, :sum or :gain=2", self.at)
        self.at += len(rule)
        if rule != "gain":
            return Reduction("mean" if rule == "mean" else "sum")
        number = _GAIN.match(self.text, self.at + 1) if self.peek() == "=" else None
        if number is None:
            self.refuse("a gain is written with its number, as in :gain=2 or :gain=0.5", self.at)
        if len(number[0]) > _LONGEST_GAIN:
            self.refuse(f"a gain has at most {_LONGEST_GAIN} characters", self.at + 1)
        self.at = number.end()
        return self.build(lambda: Reduction("gain", float(number[0])), start)

    def times(self) -> int:
        if self.peek() != "*":
            return 1
        self.at += 1
        if not self.digit():
            self.refuse("a repeat has a count, as in 15*4", self.at)
        start = self.at
        times = self.number()
        if self.peek() == ".":
            self.refuse("a repeat count is a whole number, and stands behind a half, as in 12.attn*2", self.at)
        if times < 1:
            self.refuse("a repeat count is 1 or more; to skip a layer, leave it out", start)
        return times

    def layer(self) -> int:
        start = self.at
        layer = self.number()
        if layer >= LAYER_LIMIT:
            self.refuse(f"layers are numbered from 0 to {LAYER_LIMIT - 1}", start)
        return layer

    def number(self) -> int:
        start = self.at
        while self.digit():
            self.at += 1
        if self.at - start > _LONGEST_NUMBER:
            self.refuse(f"a number has at most {_LONGEST_NUMBER} digits", start)
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
            self.refuse(f"the plan nests groups and blocks deeper than {NESTING_LIMIT}; write it flatter", start)
        self.at += 1
        return start

    def ascend(self, start: int, closer: str) -> None:
        character = self.peek()
        if character == "":
            self.refuse(f"this {self.text[start]} is never closed: write {closer} where it ends", start)
        if character == "|":
            self.refuse("a | stands between the branches of a group ( ), not in a block [ ]", self.at)
        if character != closer:
            self.refuse(f"the {self.text[start]} opened before is closed by {closer}, not {character}", self.at)
        self.at += 1
        self.open -= 1

    def count(self, visits: int, start: int) -> None:
        self.visits += visits
        if self.visits > STEP_LIMIT:
            self.refuse(f"the plan would run more than {STEP_LIMIT:,} layers one after another", start)

    def build(self, make: Callable[[], _Built], start: int) -> _Built:
        try:
            return make()
        except PlanError as refused:
            self.refuse(refused.reason, start)

    def stray(self) -> NoReturn:
        character = self.peek()
        if character in _STRAY:
            self.refuse(_STRAY[character], self.at)
        if character.isdigit():
            self.refuse("numbers are written with the digits 0-9", self.at)
        if character.isalpha():
            self.refuse("a name is of letters a-z, digits, - and _, and stands before a layer, as in a:0-3", self.at)
        self.refuse(f"{character!r} has no meaning in a plan; write {_EXAMPLE}", self.at)

    def run_on(self) -> NoReturn:
        character = self.peek()
        if character in "([" or self.digit() or self.letter():
            self.refuse("stages are separated by a space, as in 0-13 (14|15) 18-31", self.at)
        if character == "*":
            self.refuse("one repeat count is enough: multiply them, or write a block, as in [15*4]*2", self.at)
        if character == "-":
            self.refuse("a range has two ends, as in 0-13 or 0-13.attn; only a layer on its own can be one", self.at)
        if character == ":":
            self.refuse("a merge rule stands directly behind a group, before its repeat: (14|15):sum*3", self.at)
        self.stray()

    def refuse(self, message: str, position: int) -> NoReturn:
        raise PlanError(message, text=self.text, position=position)
