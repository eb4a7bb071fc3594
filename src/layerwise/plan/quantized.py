"""Layers whose weights are quantized while they run: a plan names a type of GGUF in place of a model.

    0-13 Q4_0:14 15-29           layer 14 computes with its matrices quantized to Q4_0 and dequantized
    Q8_0:0-3 Q4_0:4-29           every layer at some type
    0-13 Q4_0-noise7:14 15-29    the null: noise of the error's norm in its place, drawn by seed 7

What holds for layers of several models holds for types too; a model cannot have such a name.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from layerwise.errors import PlanError

if TYPE_CHECKING:
    from layerwise.plan import Plan

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
