"""A plan: which layers of a transformer run, in which order, and how their outputs are joined.

A plan is a hashable value that never holds a model: a tuple of stages, each a `Visit` (one layer, or half of one), a
`Group` (branches that read one hidden state and are merged) or a `Block` (a sub-plan), each possibly repeated. It
unrolls into a flat list of `Step`s. A visit may name the model of its layer, `a:12`, or the type of its quantized
weights, `Q4_0:12`. Layers count from 0. `Plan.check` tells whether a model has the layers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import islice
from operator import index
from typing import TYPE_CHECKING, Literal, NoReturn, TypeAlias, get_args

from layerwise.errors import PlanError, near_matches
from layerwise.plan.checks import (
    LAYER_LIMIT,
    SOURCE,
    STEP_LIMIT,
    TYPES,
    Sublayer,
    check_depth,
    check_size,
    check_source,
    check_sublayer,
    check_times,
    check_tuple,
    named,
    shown,
    weight_type,
)

if TYPE_CHECKING:
    from layerwise.plan import Matrix

ReductionRule: TypeAlias = Literal["mean", "sum", "gain"]


@dataclass(frozen=True, slots=True)
class Reduction:
    """How the branches of a group become one hidden state.

    With x the input of the group and `delta_m = branch_m(x) - x` the update of each of its M branches, the
    group returns

        mean     x + (1/M) sum delta_m     the mean of the branches' outputs, as published by the Painters
        sum      x +       sum delta_m
        gain     x + (g/M) sum delta_m     g = 1 is the mean, g = M the sum

    >>> Reduction("gain", 2).weight(branches=4)
    0.5
    """

    rule: ReductionRule = "mean"
    gain: float | None = None

    def __post_init__(self) -> None:
        rules = get_args(ReductionRule)
        if self.rule not in rules:
            raise PlanError(f"unknown merge rule {shown(self.rule)}; {near_matches(str(self.rule), rules)}")
        if self.rule != "gain":
            if self.gain is not None:
                raise PlanError(
                    f"the rule {self.rule} takes no gain, not {shown(self.gain)}; write Reduction('gain', ...)"
                )
            return
        if type(self.gain) not in (int, float):
            raise PlanError(f"a gain is a number such as 0.5, not {shown(self.gain)}")
        try:
            gain = float(self.gain)  # type: ignore[arg-type]  # an int or a float, by the line above
        except OverflowError:
            gain = math.inf
        if not math.isfinite(gain):
            raise PlanError(f"a gain is a finite number such as 0.5, not {gain}")
        object.__setattr__(self, "gain", gain + 0.0)  # -0.0 becomes 0.0: equal plans then have equal texts

    def weight(self, branches: int) -> float:
        """What each branch's update counts for in a group of so many branches."""
        if self.rule == "sum":
            return 1.0
        return (1.0 if self.gain is None else self.gain) / branches

    def __str__(self) -> str:
        """The rule as a plan's text has it, without the colon: `mean`, `sum`, `gain=2`."""
        return self.rule if self.gain is None else f"gain={repr(self.gain).removesuffix('.0')}"


@dataclass(frozen=True, slots=True)
class Visit:
    """One layer, or one half of it, run `times` times in a row.

    `Visit(15, 4)` is the text `15*4`, `Visit(12, part="attn")` is `12.attn` (see `layerwise.plan.checks`), and
    `Visit(12, source="a")` is `a:12`, layer 12 of the model called a (see `layerwise.plan.checks`).
    """

    layer: int
    times: int = 1
    sublayer: Sublayer | None = None
    source: str | None = None

    def __post_init__(self) -> None:
        if type(self.layer) is not int or not 0 <= self.layer < LAYER_LIMIT:
            raise PlanError(f"a layer is a whole number from 0 to {LAYER_LIMIT - 1}, not {shown(self.layer)}")
        check_times(self.times)
        if self.sublayer is not None:
            check_sublayer(self.sublayer)
        if self.source is not None:
            check_source(self.source)
        check_size(self.evaluations, self.nesting)

    @property
    def evaluations(self) -> int:
        """How many layer evaluations it unrolls to; a half counts as one, since its whole block is called."""
        return self.times

    @property
    def nesting(self) -> int:
        """How many groups and blocks lie inside one another."""
        return 0


@dataclass(frozen=True, slots=True)
class Group:
    """Branches that read the same hidden state and are merged; the merged state is fed back `times` times.

    `Group((Plan.of([14]), Plan.of([15])), times=3)` is the text `(14|15)*3`.
    A group of one branch is allowed: with a gain it is a layer whose update is scaled, `(15):gain=0.5`.
    """

    branches: tuple[Plan, ...]
    merge: Reduction = field(default_factory=Reduction)
    times: int = 1

    def __post_init__(self) -> None:
        check_tuple("a group's branches", self.branches, (Plan,))
        if not isinstance(self.merge, Reduction):
            raise PlanError(f"a group's merge is a Reduction, such as Reduction('sum'), not {shown(self.merge)}")
        check_times(self.times)
        check_size(self.evaluations, self.nesting)

    @property
    def evaluations(self) -> int:
        return self.times * sum(branch.evaluations for branch in self.branches)

    @property
    def nesting(self) -> int:
        return 1 + max(branch.nesting for branch in self.branches)


@dataclass(frozen=True, slots=True)
class Block:
    """A sub-plan run `times` times. `Block(Plan.of(range(45, 52)), 2)` is the text `[45-51]*2`."""

    plan: Plan
    times: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.plan, Plan):
            raise PlanError(f"a block holds a Plan, not {shown(self.plan)}")
        check_times(self.times)
        check_size(self.evaluations, self.nesting)

    @property
    def evaluations(self) -> int:
        return self.times * self.plan.evaluations

    @property
    def nesting(self) -> int:
        return 1 + self.plan.nesting


Stage: TypeAlias = Visit | Group | Block


@dataclass(frozen=True, slots=True, repr=False)
class Plan:
    """An ordered, non-empty tuple of stages. Frozen and hashable; `Plan.parse(str(plan)) == plan` always.

    >>> plan = Plan.parse("0-3 (4|5)*2 6 7")
    >>> plan.order()
    (0, 1, 2, 3, 4, 5, 4, 5, 6, 7)
    >>> plan.cost()
    Cost(evaluations=10, stages=8, weights=8, slots=10)
    """

    stages: tuple[Stage, ...]
    # Kept, not recomputed: every enclosing group and block asks for them again.
    evaluations: int = field(init=False, compare=False)
    nesting: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        check_tuple("a plan's stages", self.stages, (Visit, Group, Block))
        object.__setattr__(self, "evaluations", sum(stage.evaluations for stage in self.stages))
        object.__setattr__(self, "nesting", max(stage.nesting for stage in self.stages))
        check_size(self.evaluations, self.nesting)

    @classmethod
    def parse(cls, text: str | Plan) -> Plan:
        """Parse a plan's text, as `layerwise.plan.grammar` defines it; `PlanError` points at the character.

        A plan is returned as it is, so that functions take plans and texts.
        """
        from layerwise.plan import parse

        return text if isinstance(text, Plan) else parse(text)

    @classmethod
    def identity(cls, depth: int) -> Plan:
        """The plan a model of `depth` layers was trained with.

        >>> Plan.identity(32)
        Plan('0-31')
        """
        check_depth(depth)
        return cls.of(range(depth))

    @classmethod
    def of(cls, layers: Iterable[int]) -> Plan:
        """The plan that visits these layers in this order; numpy and other whole numbers are welcome.

        >>> Plan.of([0, 1, 2, 5, 4])
        Plan('0-2 5 4')
        """
        try:
            numbers = [layer if isinstance(layer, bool) else index(layer) for layer in islice(layers, STEP_LIMIT + 1)]
        except TypeError as error:
            raise PlanError(f"Plan.of takes whole numbers, as in Plan.of([0, 1, 3]); {error}") from None
        return cls(tuple(map(_whole_layer, numbers)))

    def __str__(self) -> str:
        from layerwise.plan import write

        return write(self)

    def __repr__(self) -> str:
        return f"Plan({str(self)!r})"

    def _repr_html_(self) -> str:
        from layerwise.plan import picture

        return f'<code>{self}</code><pre style="line-height:1">{picture(self)}</pre>'

    def steps(self) -> tuple[Step, ...]:
        """The plan unrolled: the one lowering that every executor follows (see `Step` for what each does).

        >>> for step in Plan.parse("(6 7|8):sum").steps():
        ...     print(step)
        Step(layer=6, opens=1, closes=(), sublayer=None, source=None)
        Step(layer=7, opens=0, closes=(None,), sublayer=None, source=None)
        Step(layer=8, opens=0, closes=(Reduction(rule='sum', gain=None),), sublayer=None, source=None)
        """
        return tuple(lower(self))

    def order(self) -> tuple[int, ...]:
        """The layer of each step, in the order of execution; for a half, the layer that it is a half of."""
        return tuple(step.layer for step in self.steps())

    def layers(self) -> frozenset[int]:
        """The numbers of the layers that run at all, whole or in part, of whichever model."""
        return frozenset(layer for _, layer in self.weights())

    def weights(self) -> frozenset[tuple[str | None, int]]:
        """The (source, layer) pairs whose weights it touches; a source of `None` is the model at hand.

        >>> sorted(Plan.parse("a:0 b:0 a:0 b:1.mlp").weights())
        [('a', 0), ('b', 0), ('b', 1)]
        """
        return frozenset((step.source, step.layer) for step in self.steps())

    def sources(self) -> frozenset[str]:
        """The names of the models that it takes layers from, beside the model at hand; a type of GGUF is none.

        >>> sorted(Plan.parse("a:0-3 (b:4|5) Q4_0:6").sources())
        ['a', 'b']
        """
        return frozenset(source for source, _ in self.weights() if source is not None and weight_type(source) is None)

    def has_sublayers(self) -> bool:
        """Whether it visits a half of a layer; its `order` then does not say all that it runs.

        >>> Plan.parse("0-11 12.mlp 13-29").has_sublayers()
        True
        """
        return any(step.sublayer is not None for step in self.steps())

    def check(self, depth: int, sources: Collection[str] | None = None) -> None:
        """Raise `PlanError` unless a model of `depth` layers can run this plan.

        Told the names of the `sources` at hand, all of that depth, also unless it names no others.

        >>> Plan.parse("0-3 9").check(depth=6)
        Traceback (most recent call last):
        layerwise.errors.PlanError: step 5 of the plan visits layer 9, but the model has 6 layers: use 0 to 5
          0-3 9
              ^
        """
        check_depth(depth)
        if sources is not None and not self.sources() <= set(sources):
            self._refuse_source(sources)
        if max(self.layers()) < depth:
            return
        order = self.order()
        step = next(number for number, layer in enumerate(order) if layer >= depth)
        text = str(self)
        raise PlanError(
            f"step {step + 1} of the plan visits layer {order[step]}, but the model has {depth} "
            f"layer{'s' * (depth != 1)}: use {f'0 to {depth - 1}' if depth > 1 else '0'}",
            text=text,
            position=_position_of_layer_from(depth, text),
        )

    def _refuse_source(self, known: Collection[str]) -> NoReturn:
        text = str(self)
        missing = self.sources() - set(known)
        unknown = next(name for step in self.steps() if (name := step.source) is not None and name in missing)
        instead = near_matches(unknown, known) if known else "there is one model, so leave the names out"
        instead += f", or give a layer a type of GGUF: {near_matches(unknown, TYPES)}"
        raise PlanError(
            f"the plan takes layers from {unknown!r}, and no model of that name is here; {instead}",
            text=text,
            position=re.search(rf"(?<![\w-]){re.escape(unknown)}:", text).start(),  # type: ignore[union-attr]
        )

    def cost(self) -> Cost:
        """Layer evaluations, sequential stages, distinct weights and KV slots (see `layerwise.plan.Cost`)."""
        return Cost(self.evaluations, count_stages(self), len(self.weights()), self.evaluations)

    def matrix(self) -> Matrix:
        """The wiring A: what each step reads of what came before it; see `layerwise.plan.wiring`."""
        from layerwise.plan import matrix

        return matrix(self)


@lru_cache(LAYER_LIMIT, typed=True)  # typed, since `True` is refused and equals 1
def _whole_layer(layer: int) -> Visit:
    return Visit(layer)


def _position_of_layer_from(depth: int, text: str) -> int:
    for match in re.finditer(rf"(?:^|(?<=[ (\[|]))(?:{SOURCE.pattern}:)?(\d+)(?:-(\d+))?", text):
        for end in (1, 2):
            if match[end] is not None and int(match[end]) >= depth:
                return match.start(end)
    raise AssertionError(f"{text!r} names no layer of {depth} or above")


Close: TypeAlias = Reduction | None


@dataclass(frozen=True, slots=True)
class Step:
    """One layer evaluation of an unrolled plan, and the groups that open before it and close after it.

    An executor keeps the running state `x` and a stack of frames (base, outputs). For each step it

    1. pushes `opens` frames, each with base = x and no outputs;
    2. sets x = layer(x), or x + branch(x) where `sublayer` names one branch of the layer; the layer is that of the
       model that `source` names, or of the model at hand;
    3. for each close, innermost first, appends x to the outputs of the top frame. If the close is `None`, the
       next branch begins: x = base. If it is a `Reduction`, the group is done: x = merge(base, outputs), and the
       frame goes.
    """

    layer: int
    opens: int = 0
    closes: tuple[Close, ...] = ()
    sublayer: Sublayer | None = None
    source: str | None = None

    @property
    def name(self) -> str:
        """What runs, as a plan's text has it: `12`, `12.attn` for one half, `a:12` for a layer of another model."""
        return named(self.layer, self.sublayer, self.source)


def lower(plan: Plan) -> list[Step]:
    """The steps of a plan; `Plan.steps` is this as a tuple."""
    steps: list[Step] = []
    for stage in plan.stages:
        match stage:
            case Visit():
                once = [Step(stage.layer, sublayer=stage.sublayer, source=stage.source)]
            case Block():
                once = lower(stage.plan)
            case Group():
                once = _unroll_group(stage)
        steps += once * stage.times
    return steps


def _unroll_group(group: Group) -> list[Step]:
    steps: list[Step] = []
    for branch in group.branches:
        inside = lower(branch)
        inside[-1] = replace(inside[-1], closes=(*inside[-1].closes, None))
        steps += inside
    steps[0] = replace(steps[0], opens=steps[0].opens + 1)
    steps[-1] = replace(steps[-1], closes=(*steps[-1].closes[:-1], group.merge))
    return steps


# -- cost ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a plan, known before any model runs it.

    Compute is layer `evaluations`; latency on enough machines is sequential `stages` (a group counts its longest
    branch); memory is `weights`, the distinct layers (layer 3 of two models is two); generation needs a KV cache slot
    of `slots` per evaluation. A half of a layer counts as a whole one, so these numbers are upper bounds.
    """

    evaluations: int
    stages: int
    weights: int
    slots: int


def count_stages(part: Plan | Stage) -> int:
    """Return the number of sequential stages: a group counts its longest branch."""
    match part:
        case Plan():
            return sum(map(count_stages, part.stages))
        case Visit():
            return part.times
        case Block():
            return part.times * count_stages(part.plan)
        case Group():
            return part.times * max(map(count_stages, part.branches))
