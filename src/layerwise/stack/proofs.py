"""What a model must show before its layers may be re-planned: four questions, each answered by running it.

None of them knows an architecture. The first three refuse a model with the reason; the last only finds out whether
norm and head can be called on some of the tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from layerwise.errors import UnsupportedModel
from layerwise.plan import Plan
from layerwise.stack.inputs import main_tensor
from layerwise.stack.rounding import same

if TYPE_CHECKING:
    from layerwise.stack.stack import Stack


def prove_repeatable(stack: Stack, inputs: Mapping[str, Any], own: Tensor) -> None:
    """Raise `UnsupportedModel` unless the model gives its `own` output on `inputs` again."""
    if not same(main_tensor(stack.model(**inputs)), own):
        raise UnsupportedModel(
            f"{type(stack.model).__name__} gives different outputs for the same input in evaluation mode, "
            "so nothing that is done to its layers could be told from chance"
        )


def prove_identity(stack: Stack, inputs: Mapping[str, Any], own: Tensor) -> None:
    """Raise `UnsupportedModel` unless the identity plan gives the model's `own` output to the bit."""
    ours = stack.logits(Plan.identity(stack.depth), **inputs)
    if not same(ours, own):
        raise UnsupportedModel(
            f"{type(stack.model).__name__}: the identity plan over {stack.path} does not give the model's own output "
            f"(they differ by up to {(ours - own).abs().max().item():.3g}); "
            "the model does more with its layers than run them in order"
        )


def prove_free_of_position(stack: Stack, inputs: Mapping[str, Any]) -> None:
    """Raise `UnsupportedModel` unless another order gives the same in place as step by step.

    The last layer runs first, and the first layer twice: a cache slot, an index or a live cache in the wrong place
    shows.
    """
    moved = Plan.of([*range(stack.depth - 1, -1, -1), 0])
    stepwise = stack.logits(moved, **inputs)
    with stack.under(moved):
        inside = main_tensor(stack.model(**inputs))
    if not close(stepwise, inside):
        raise UnsupportedModel(
            f"{type(stack.model).__name__}: its blocks compute something else when their position changes "
            f"(outputs differ by up to {(stepwise - inside).abs().max().item():.3g}), "
            "so a plan would not mean the same in place and step by step"
        )


def head_acts_by_token(stack: Stack, inputs: Mapping[str, Any], own: Tensor) -> bool:
    """Whether norm and head give a part of the tokens what they give it among all tokens."""
    ids = inputs.get("input_ids")
    if ids is None or own.shape[:2] != ids.shape or own.ndim != 3 or ids.shape[1] < 3:
        return False
    captured = stack.capture(**inputs)
    state = stack.run(Plan.identity(stack.depth), captured)
    try:
        some = stack.changed(state, lambda each: each[:1, 1:-1])
        part = main_tensor(stack.finish(some, {"input_ids": ids[:1, 1:-1]}))
    except (RuntimeError, ValueError, IndexError):
        return False
    return close(part, own[:1, 1:-1])


def close(left: Tensor, right: Tensor) -> bool:
    """Equal up to the rounding of the dtype, relative to the largest entry."""
    if left.shape != right.shape:
        return False
    tolerance = 32 * torch.finfo(left.dtype).eps * float(right.abs().nan_to_num().max())
    return torch.allclose(left, right, rtol=0.0, atol=tolerance, equal_nan=True)
