"""Validate the parts of a plan: layer numbers, sublayers, model names and quantization types.

Values are checked against limits as soon as they are created, so that a short text cannot request millions of layers.
`Plan.check` checks whether a particular model has the layers.
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
"""Maximum number of layer evaluations in a plan."""

NESTING_LIMIT = 50
"""Maximum nesting depth of groups and blocks, so that recursion stays within Python's limit."""

LAYER_LIMIT = 10_000
"""Layer numbers must be less than this."""

SOURCE = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
"""Pattern of a source, the name before the colon in `a:12`."""

MAX_SOURCE_LENGTH = 40

Sublayer: TypeAlias = Literal["attn", "mlp"]
"""`attn` mixes tokens (attention or a state-space model). `mlp` acts on each token separately."""

SUBLAYERS: tuple[Sublayer, ...] = get_args(Sublayer)

TYPES = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "MXFP4")
"""GGUF types with blocks of 32 weights that the package gguf can quantize to."""

_TYPE = re.compile(rf"({'|'.join(TYPES)})(?:-noise(0|[1-9]\d{{0,5}}))?", re.ASCII)


class WeightType(NamedTuple):
    """GGUF type of a layer. If `seed` is set, noise of the same norm replaces the quantization error."""

    type: str
    seed: int | None = None

    def __str__(self) -> str:
        return self.type if self.seed is None else f"{self.type}-noise{self.seed}"


def describe_value(value: object) -> str:
    if type(value) is int and abs(value) > 10**18:
        return "a number of more than 18 digits"
    text = repr(value)
    return f"{text if len(text) <= 60 else text[:57] + '...'} ({type(value).__name__})"


def check_depth(depth: int, least: int = 1) -> None:
    if type(depth) is not int or not least <= depth <= LAYER_LIMIT:
        raise PlanError(
            f"depth must be an integer number of layers from {least} to {LAYER_LIMIT}, got {describe_value(depth)}"
        )


def check_tuple(what: str, values: Sequence[object], kinds: tuple[type, ...]) -> None:
    names = " or ".join(kind.__name__ for kind in kinds)
    if type(values) is not tuple:
        raise PlanError(f"{what} must be a tuple of {names}, got {describe_value(values)}")
    if not values:
        raise PlanError(f"{what} must not be empty")
    for value in values:
        if not isinstance(value, kinds):
            raise PlanError(f"{what} must be a tuple of {names}, but it contains {describe_value(value)}")


def check_times(times: int) -> None:
    if type(times) is not int or times < 1:
        raise PlanError(
            f"a repeat count must be an integer of at least 1, got {describe_value(times)}; to skip a layer, omit it"
        )


def check_source(name: object) -> None:
    if not isinstance(name, str) or SOURCE.fullmatch(name) is None:
        raise PlanError(
            "a source name must be a letter followed by letters, digits, - or _, such as a or run-2, got "
            f"{describe_value(name)}"
        )
    if len(name) > MAX_SOURCE_LENGTH:
        raise PlanError(f"a source name must have at most {MAX_SOURCE_LENGTH} characters, got {len(name)}")


def source_name(number: int) -> str:
    """Return the default name of model number `number`: a to z, then a1 to z1, and so on.

    >>> [source_name(number) for number in (0, 25, 26, 51)]
    ['a', 'z', 'a1', 'z1']
    """
    letters = len(ascii_lowercase)
    return f"{ascii_lowercase[number % letters]}{number // letters or ''}"


def check_size(evaluations: int, nesting: int) -> None:
    if evaluations > STEP_LIMIT:
        raise PlanError(f"a plan must run at most {STEP_LIMIT:,} layers in total; use smaller repeat counts")
    if nesting > NESTING_LIMIT:
        raise PlanError(f"groups and blocks must be nested at most {NESTING_LIMIT} deep; remove some brackets")


def check_sublayer(sublayer: object) -> None:
    if sublayer not in SUBLAYERS:
        raise PlanError(f"unknown sublayer {describe_value(sublayer)}; {near_matches(str(sublayer)[:30], SUBLAYERS)}")


def other_sublayer(sublayer: Sublayer) -> Sublayer:
    check_sublayer(sublayer)
    return "mlp" if sublayer == "attn" else "attn"


def layer_name(layer: int, sublayer: Sublayer | None, source: str | None = None) -> str:
    """Format a layer or sublayer as in the text of a plan.

    >>> layer_name(12, None), layer_name(12, "attn"), layer_name(12, "attn", "a")
    ('12', '12.attn', 'a:12.attn')
    """
    name = str(layer) if source is None else f"{source}:{layer}"
    return name if sublayer is None else f"{name}.{sublayer}"


def weight_type(source: str | None) -> WeightType | None:
    """Parse a source as a quantization type. Return None if it is the name of a model.

    >>> weight_type("Q4_0"), weight_type("Q8_0-noise3"), weight_type("a")
    (WeightType(type='Q4_0', seed=None), WeightType(type='Q8_0', seed=3), None)
    """
    match = None if source is None else _TYPE.fullmatch(source)
    return match and WeightType(match[1], None if match[2] is None else int(match[2]))


def quantized_layers(plan: Plan) -> tuple[tuple[int, WeightType], ...]:
    """Return the quantized layers of a plan with their types, in ascending order.

    >>> from layerwise.plan import Plan
    >>> [(layer, str(kind)) for layer, kind in quantized_layers(Plan.parse("0-2 Q4_0:4.mlp Q8_0:3"))]
    [(3, 'Q8_0'), (4, 'Q4_0')]
    """
    return tuple(sorted((layer, kind) for source, layer in plan.weights() if (kind := weight_type(source)) is not None))


def refuse_quantized_layers(plan: Plan, action: str) -> None:
    for layer, kind in quantized_layers(plan):
        raise PlanError(
            f"cannot {action} under a plan with {kind}:{layer}, whose weights are quantized on the fly and never "
            f"stored; write {layer} without the type, or only measure the plan (layerwise sweep, evaluate, stack.run)"
        )
