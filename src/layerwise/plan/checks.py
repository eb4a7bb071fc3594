"""Limits that keep every plan, of any model, small enough to unroll, walk and print.

They are checked when a value is made, before a short text can ask for a million million layers. Whether a particular
model has the layers is checked by `Plan.check`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from string import ascii_lowercase
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, get_args

from layerwise.errors import PlanError, near_matches

if TYPE_CHECKING:
    from layerwise.plan import Plan

STEP_LIMIT = 10_000
"""No plan unrolls to more layer evaluations: no text, however short, can exhaust a machine."""

NESTING_LIMIT = 50
"""No plan nests groups and blocks deeper: no walk over a plan can exhaust Python's stack."""

LAYER_LIMIT = 10_000
"""Layer indices stay below this: far above any model, and low enough to catch a slip of the keyboard."""

SOURCE = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
"""The names of sources, as a plan's text has them before the colon."""

LONGEST_SOURCE = 40


def check_depth(depth: int, least: int = 1) -> None:
    if type(depth) is not int or not least <= depth <= LAYER_LIMIT:
        raise PlanError(f"a depth is a whole number of layers from {least} to {LAYER_LIMIT}, not {shown(depth)}")


def check_tuple(what: str, values: Sequence[object], kinds: tuple[type, ...]) -> None:
    names = " or ".join(kind.__name__ for kind in kinds)
    if type(values) is not tuple:
        raise PlanError(f"{what} are a tuple of {names}, not {shown(values)}")
    if not values:
        raise PlanError(f"{what} are empty: a plan runs at least one layer")
    for value in values:
        if not isinstance(value, kinds):
            raise PlanError(f"{what} are a tuple of {names}, but one of them is {shown(value)}")


def check_times(times: int) -> None:
    """Raise `PlanError` unless `times` is a repeat count: 1 or more."""
    if type(times) is not int or times < 1:
        raise PlanError(
            f"a repeat count is a whole number from 1 up, not {shown(times)}; to skip a layer, leave it out"
        )


def check_source(name: object) -> None:
    if not isinstance(name, str) or SOURCE.fullmatch(name) is None:
        raise PlanError(
            f"a source is named by a letter and then letters, digits, - or _, as in a or run-2, not {shown(name)}"
        )
    if len(name) > LONGEST_SOURCE:
        raise PlanError(f"the name of a source has at most {LONGEST_SOURCE} characters, not {len(name)}")


def source_name(number: int) -> str:
    """The name of a source that has none of its own: a to z, then a1 to z1, and so on.

    >>> [source_name(number) for number in (0, 25, 26, 51)]
    ['a', 'z', 'a1', 'z1']
    """
    letters = len(ascii_lowercase)
    return f"{ascii_lowercase[number % letters]}{number // letters or ''}"


def check_size(evaluations: int, nesting: int) -> None:
    if evaluations > STEP_LIMIT:
        raise PlanError(f"the plan would run more than {STEP_LIMIT:,} layers one after another; repeat less")
    if nesting > NESTING_LIMIT:
        raise PlanError(f"the plan nests groups and blocks deeper than {NESTING_LIMIT}; write it flatter")


def shown(value: object) -> str:
    if type(value) is int and abs(value) > 10**18:
        return "a number of more than 18 digits"
    shown = repr(value)
    return f"{shown if len(shown) <= 60 else shown[:57] + '...'} ({type(value).__name__})"


Sublayer: TypeAlias = Literal["attn", "mlp"]

SUBLAYERS: tuple[Sublayer, ...] = get_args(Sublayer)


def check_sublayer(sublayer: object) -> None:
    if sublayer not in SUBLAYERS:
        raise PlanError(f"unknown half {shown(sublayer)} of a layer; {near_matches(str(sublayer)[:30], SUBLAYERS)}")


def other_sublayer(sublayer: Sublayer) -> Sublayer:
    """The other half of a layer.

    >>> other_sublayer("attn")
    'mlp'
    """
    check_sublayer(sublayer)
    return "mlp" if sublayer == "attn" else "attn"


def named(layer: int, sublayer: Sublayer | None, source: str | None = None) -> str:
    """A layer or one of its halves, of the model at hand or of a named one, as a plan's text has it.

    >>> named(12, None), named(12, "attn"), named(12, "attn", "a")
    ('12', '12.attn', 'a:12.attn')
    """
    whole = str(layer) if source is None else f"{source}:{layer}"
    return whole if sublayer is None else f"{whole}.{sublayer}"


TYPES = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "MXFP4")
"""The types, as GGUF names them, that the package gguf quantizes in blocks of 32."""

_NAME = re.compile(rf"({'|'.join(TYPES)})(?:-noise(0|[1-9]\d{{0,5}}))?", re.ASCII)


class WeightType(NamedTuple):
    """The type at which weights are; with a `seed`, they have noise of the norm of its error and not the error."""

    type: str
    seed: int | None = None

    def __str__(self) -> str:
        return self.type if self.seed is None else f"{self.type}-noise{self.seed}"


def weight_type(source: str | None) -> WeightType | None:
    """What the name before a layer says of its weights; `None` for no name, and for that of a model.

    >>> weight_type("Q4_0"), weight_type("Q8_0-noise3"), weight_type("a")
    (WeightType(type='Q4_0', seed=None), WeightType(type='Q8_0', seed=3), None)
    """
    match = None if source is None else _NAME.fullmatch(source)
    return match and WeightType(match[1], None if match[2] is None else int(match[2]))


def quantized_layers(plan: Plan) -> tuple[tuple[int, WeightType], ...]:
    """The layers that run at a type, each with it, in the order of their numbers.

    >>> from layerwise.plan import Plan
    >>> [(layer, str(kind)) for layer, kind in quantized_layers(Plan.parse("0-2 Q4_0:4.mlp Q8_0:3"))]
    [(3, 'Q8_0'), (4, 'Q4_0')]
    """
    return tuple(sorted((layer, kind) for source, layer in plan.weights() if (kind := weight_type(source)) is not None))


def refuse_quantized_layers(plan: Plan, wish: str) -> None:
    for layer, kind in quantized_layers(plan):
        raise PlanError(
            f"cannot {wish} under a plan with {kind}:{layer}, whose weights are quantized while it runs and stored "
            f"nowhere; write {layer}, or measure the plan (layerwise sweep, evaluate, stack.run, stack.under)"
        )
