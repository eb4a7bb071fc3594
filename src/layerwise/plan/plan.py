"""Plans: which layers of a transformer run, in which order, and how their outputs are merged.

A plan is a sequence of stages: a `Visit` (one layer or sublayer), a `Group` (parallel branches whose outputs are
merged) or a `Block` (a nested plan), each possibly repeated. `Plan.steps` unrolls them. Layers are numbered from 0.
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
    describe_value,
    layer_name,
    weight_type,
)

if TYPE_CHECKING:
    from layerwise.plan import Matrix

ReductionRule: TypeAlias = Literal["mean", "sum", "gain"]


@dataclass(frozen=True, slots=True)
class Reduction:
    """Rule that merges the M branches of a group into one hidden state.

    With x the input of the group and `delta_m = branch_m(x) - x`, the group returns

        mean     x + (1/M) sum delta_m     the mean of the branches' outputs
        sum      x +       sum delta_m
        gain     x + (g/M) sum delta_m     g = 1 equals mean, and g = M equals sum

    >>> Reduction("gain", 2).weight(branches=4)
    0.5
    """

    rule: ReductionRule = "mean"
    gain: float | None = None

    def __post_init__(self) -> None:
        rules = get_args(ReductionRule)
        if self.rule not in rules:
            raise PlanError(f"unknown merge rule {describe_value(self.rule)}; {near_matches(str(self.rule), rules)}")
        if self.rule != "gain":
            if self.gain is not None:
                raise PlanError(
                    f"gain must be None for the rule {self.rule}, got {describe_value(self.gain)}; "
                    "write Reduction('gain', ...)"
                )
            return
        if type(self.gain) not in (int, float):
            raise PlanError(f"gain must be a number such as 0.5, got {describe_value(self.gain)}")
        try:
            gain = float(self.gain)  # type: ignore[arg-type]  # an int or a float, by the line above
        except OverflowError:
            gain = math.inf
        if not math.isfinite(gain):
            raise PlanError(f"gain must be finite, got {gain}")
        object.__setattr__(self, "gain", gain + 0.0)  # -0.0 becomes 0.0: equal plans then have equal texts

    def weight(self, branches: int) -> float:
        """Return the factor that multiplies the update of each branch, given the number of branches."""
        if self.rule == "sum":
            return 1.0
        return (1.0 if self.gain is None else self.gain) / branches

    def __str__(self) -> str:
        return self.rule if self.gain is None else f"gain={repr(self.gain).removesuffix('.0')}"


@dataclass(frozen=True, slots=True)
class Visit:
    """One layer or sublayer, run `times` times in a row.

    `Visit(15, 4)` is written `15*4`, `Visit(12, sublayer="attn")` is `12.attn`, and `Visit(12, source="a")` is `a:12`,
    layer 12 of model a. The source can also be a quantization type: `Q4_0:12` is layer 12 quantized to Q4_0.
    """

    layer: int
    times: int = 1
    sublayer: Sublayer | None = None
    source: str | None = None

    def __post_init__(self) -> None:
        if type(self.layer) is not int or not 0 <= self.layer < LAYER_LIMIT:
            raise PlanError(f"layer must be an integer from 0 to {LAYER_LIMIT - 1}, got {describe_value(self.layer)}")
        check_times(self.times)
        if self.sublayer is not None:
            check_sublayer(self.sublayer)
        if self.source is not None:
            check_source(self.source)
        check_size(self.evaluations, self.nesting)

    @property
    def evaluations(self) -> int:
        """Number of layer evaluations. A sublayer counts as one."""
        return self.times

    @property
    def nesting(self) -> int:
        """Nesting depth of groups and blocks."""
        return 0


@dataclass(frozen=True, slots=True)
class Group:
    """Parallel branches that read the same hidden state and whose outputs are merged, run `times` times in a row.

    `Group((Plan.of([14]), Plan.of([15])), times=3)` is written `(14|15)*3`. With a single branch, a gain scales its
    update, as in `(15):gain=0.5`.
    """

    branches: tuple[Plan, ...]
    merge: Reduction = field(default_factory=Reduction)
    times: int = 1

    def __post_init__(self) -> None:
        check_tuple("a group's branches", self.branches, (Plan,))
        if not isinstance(self.merge, Reduction):
            raise PlanError(f"merge must be a Reduction, such as Reduction('sum'), got {describe_value(self.merge)}")
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
    """A nested plan, run `times` times in a row: `Block(Plan.of(range(45, 52)), 2)` is written `[45-51]*2`."""

    plan: Plan
    times: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.plan, Plan):
            raise PlanError(f"the plan of a block must be a Plan, got {describe_value(self.plan)}")
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
    """An immutable, hashable sequence of one or more stages; `Plan.parse(str(plan)) == plan`.

    >>> plan = Plan.parse("0-3 (4|5)*2 6 7")
    >>> plan.order()
    (0, 1, 2, 3, 4, 5, 4, 5, 6, 7)
    >>> plan.cost()
    Cost(evaluations=10, stages=8, weights=8, slots=10)
    """

    stages: tuple[Stage, ...]
    # Stored, since every enclosing group and block reads them.
    evaluations: int = field(init=False, compare=False)
    nesting: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        check_tuple("a plan's stages", self.stages, (Visit, Group, Block))
        object.__setattr__(self, "evaluations", sum(stage.evaluations for stage in self.stages))
        object.__setattr__(self, "nesting", max(stage.nesting for stage in self.stages))
        check_size(self.evaluations, self.nesting)

    @classmethod
    def parse(cls, text: str | Plan) -> Plan:
        """Parse a plan in the language of `layerwise.plan.grammar`, or return a `Plan` unchanged.

        Raises:
            PlanError: If the text is not a valid plan. The message marks the first invalid character.

        Example:
            >>> Plan.parse("0-3 (4|5)*2 6")
            Plan('0-3 (4|5)*2 6')
        """
        from layerwise.plan import parse

        return text if isinstance(text, Plan) else parse(text)

    @classmethod
    def identity(cls, depth: int) -> Plan:
        """Return the plan that runs every layer once, in order.

        >>> Plan.identity(32)
        Plan('0-31')
        """
        check_depth(depth)
        return cls.of(range(depth))

    @classmethod
    def of(cls, layers: Iterable[int]) -> Plan:
        """Return the plan that runs `layers` in the given order. NumPy integers are accepted.

        >>> Plan.of([0, 1, 2, 5, 4])
        Plan('0-2 5 4')
        """
        try:
            numbers = [layer if isinstance(layer, bool) else index(layer) for layer in islice(layers, STEP_LIMIT + 1)]
        except TypeError as error:
            raise PlanError(f"Plan.of requires integers, as in Plan.of([0, 1, 3]): {error}") from None
        return cls(tuple(map(_cached_visit, numbers)))

    def __str__(self) -> str:
        from layerwise.plan import write

        return write(self)

    def __repr__(self) -> str:
        return f"Plan({str(self)!r})"

    def _repr_html_(self) -> str:
        from layerwise.plan import picture

        return f'<code>{self}</code><pre style="line-height:1">{picture(self)}</pre>'

    def steps(self) -> tuple[Step, ...]:
        """Unroll the plan into layer evaluations in order of execution, with the groups that they open and close.

        >>> for step in Plan.parse("(6 7|8):sum").steps():
        ...     print(step)
        Step(layer=6, opens=1, closes=(), sublayer=None, source=None)
        Step(layer=7, opens=0, closes=(None,), sublayer=None, source=None)
        Step(layer=8, opens=0, closes=(Reduction(rule='sum', gain=None),), sublayer=None, source=None)
        """
        return tuple(lower(self))

    def order(self) -> tuple[int, ...]:
        """Return the layer of each step, in order of execution.

        Example:
            >>> Plan.parse("0-2 [3 4]*2").order()
            (0, 1, 2, 3, 4, 3, 4)
        """
        return tuple(step.layer for step in self.steps())

    def layers(self) -> frozenset[int]:
        """Return the numbers of all layers that run entirely or as a sublayer, from any model.

        Example:
            >>> sorted(Plan.parse("0-2 4 2").layers())
            [0, 1, 2, 4]
        """
        return frozenset(layer for _, layer in self.weights())

    def weights(self) -> frozenset[tuple[str | None, int]]:
        """Return a (source, layer) pair for each layer that is used. The source of the default model is None.

        >>> sorted(Plan.parse("a:0 b:0 a:0 b:1.mlp").weights())
        [('a', 0), ('b', 0), ('b', 1)]
        """
        return frozenset((step.source, step.layer) for step in self.steps())

    def sources(self) -> frozenset[str]:
        """Return the names of the models that the plan takes layers from. Quantization types are not included.

        >>> sorted(Plan.parse("a:0-3 (b:4|5) Q4_0:6").sources())
        ['a', 'b']
        """
        return frozenset(source for source, _ in self.weights() if source is not None and weight_type(source) is None)

    def has_sublayers(self) -> bool:
        """Return whether the plan contains a sublayer such as `4.attn`.

        Example:
            >>> Plan.parse("0-3 4.attn").has_sublayers()
            True
        """
        return any(step.sublayer is not None for step in self.steps())

    def check(self, depth: int, sources: Collection[str] | None = None) -> None:
        """Check that a model of `depth` layers can run this plan.

        Args:
            depth: Number of layers of the model.
            sources: Names of the available models, which must all have this depth. If None, names are not checked.

        Raises:
            PlanError: If a layer or source does not exist.

        >>> Plan.parse("0-3 9").check(depth=6)
        Traceback (most recent call last):
        layerwise.errors.PlanError: step 5 of the plan visits layer 9, but the model has 6 layers; use 0 to 5
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
            f"layer{'s' * (depth != 1)}; use {f'0 to {depth - 1}' if depth > 1 else '0'}",
            text=text,
            position=_position_of_layer_from(depth, text),
        )

    def _refuse_source(self, available: Collection[str]) -> NoReturn:
        text = str(self)
        missing = self.sources() - set(available)
        unknown = next(name for step in self.steps() if (name := step.source) is not None and name in missing)
        fix = near_matches(unknown, available) if available else "there is only one model, so omit the names"
        fix += f", or use a quantization type: {near_matches(unknown, TYPES)}"
        raise PlanError(
            f"the plan takes layers from {unknown!r}, but no model has that name; {fix}",
            text=text,
            position=re.search(rf"(?<![\w-]){re.escape(unknown)}:", text).start(),  # type: ignore[union-attr]
        )

    def cost(self) -> Cost:
        """Count the layer evaluations, sequential stages, distinct layers and KV cache slots.

        Example:
            >>> Plan.parse("0-3 (4|5) 6").cost()
            Cost(evaluations=7, stages=6, weights=7, slots=7)
        """
        return Cost(self.evaluations, count_stages(self), len(self.weights()), self.evaluations)

    def matrix(self) -> Matrix:
        """Return the matrix of which earlier outputs each step reads; see `layerwise.plan.matrix`."""
        from layerwise.plan import matrix

        return matrix(self)


@lru_cache(LAYER_LIMIT, typed=True)  # typed, since True equals 1 but must be refused
def _cached_visit(layer: int) -> Visit:
    return Visit(layer)


def _position_of_layer_from(depth: int, text: str) -> int:
    for match in re.finditer(rf"(?:^|(?<=[ (\[|]))(?:{SOURCE.pattern}:)?(\d+)(?:-(\d+))?", text):
        for end in (1, 2):
            if match[end] is not None and int(match[end]) >= depth:
                return match.start(end)
    raise AssertionError(f"{text!r} has no layer of {depth} or above")


Close: TypeAlias = Reduction | None


@dataclass(frozen=True, slots=True)
class Step:
    """One layer evaluation of an unrolled plan, with the groups that open before it and close after it.

    An executor keeps the running state `x` and a stack of frames (base, outputs). For each step it

    1. pushes `opens` frames, each with base = x and no outputs;
    2. sets x = layer(x), or adds the update of only the `sublayer`; `source` is the layer's model or quantization type;
    3. for each of `closes`, innermost first, appends x to the outputs of the top frame. If it is None, the next branch
       begins: x = base. If it is a `Reduction`, the group ends: x = merge(base, outputs), and the frame is popped.
    """

    layer: int
    opens: int = 0
    closes: tuple[Close, ...] = ()
    sublayer: Sublayer | None = None
    source: str | None = None

    @property
    def name(self) -> str:
        """The layer as written in a plan: `12`, `12.attn` for a sublayer, or `a:12` for a layer of model a."""
        return layer_name(self.layer, self.sublayer, self.source)


def lower(plan: Plan) -> list[Step]:
    steps: list[Step] = []
    for stage in plan.stages:
        match stage:
            case Visit():
                inside = [Step(stage.layer, sublayer=stage.sublayer, source=stage.source)]
            case Block():
                inside = lower(stage.plan)
            case Group():
                inside = _unroll_group(stage)
        steps += inside * stage.times
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


@dataclass(frozen=True, slots=True)
class Cost:
    """Upper bounds on the cost of a plan. A sublayer counts as a layer.

    Attributes:
        evaluations: Number of layer evaluations.
        stages: Number of evaluations that must run one after another. A group counts as its longest branch.
        weights: Number of distinct layers to hold in memory.
        slots: Number of KV cache slots needed for generation.
    """

    evaluations: int
    stages: int
    weights: int
    slots: int


def count_stages(part: Plan | Stage) -> int:
    match part:
        case Plan():
            return sum(map(count_stages, part.stages))
        case Visit():
            return part.times
        case Block():
            return part.times * count_stages(part.plan)
        case Group():
            return part.times * max(map(count_stages, part.branches))
