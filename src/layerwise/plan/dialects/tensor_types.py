"""The types of a plan as the file that llama-quantize of llama.cpp reads with `--tensor-type-file`.

    blk\\.14\\.=q4_0

Each line is a regular expression that the name of a tensor is searched for, and the type of what it is found in. The
file says nothing of other layers: they get the type that the command names.
"""

from __future__ import annotations

from layerwise.errors import PlanError
from layerwise.plan.plan import Plan
from layerwise.plan.quantized import quantized_layers

FORM = "a file of tensor types"


def write_tensor_types(plan: Plan | str, depth: int | None = None) -> str:
    """A line for each layer at a type.

    Raises `PlanError` for a plan that is more than the layers as trained, each once, some of them at a type: what
    llama-quantize reads stays in its order. So does one of noise, and one without any type.

    >>> write_tensor_types("0 Q4_0:1 Q8_0:2-3").splitlines()
    ['blk\\\\.1\\\\.=q4_0', 'blk\\\\.2\\\\.=q8_0', 'blk\\\\.3\\\\.=q8_0']
    """
    plan = Plan.parse(plan)
    steps = plan.steps()
    as_trained = Plan.identity(len(steps) if depth is None else depth)
    whole = not any(step.sublayer is not None or step.opens or step.closes for step in steps)
    if plan.sources() or not whole or plan.order() != as_trained.order():
        raise PlanError(
            f"{FORM} says at which type each layer is, and llama-quantize leaves the layers in their order: write "
            f"them as {as_trained}, some with a type, or save a GGUF file under the plan (layerwise save)"
        )
    types = quantized_layers(plan)
    noise = next((layer for layer, kind in types if kind.seed is not None), None)
    if noise is not None or not types:
        raise PlanError(
            f"{FORM} needs layers at a type, as in Q4_0:0"
            + ("" if noise is None else f", and layer {noise} has noise in the place of one")
        )
    return "\n".join(rf"blk\.{layer}\.={kind.type.lower()}" for layer, kind in types)
