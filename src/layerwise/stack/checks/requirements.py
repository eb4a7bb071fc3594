"""What a model must show before its layers may be re-planned: four questions, each answered by running it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from layerwise.errors import UnsupportedModel
from layerwise.plan import Plan
from layerwise.stack.executors.clone import indices
from layerwise.stack.inputs import evaluating, main_tensor
from layerwise.stack.precision import in_float32
from layerwise.stack.rounding import Agreement, compare, same

if TYPE_CHECKING:
    from layerwise.stack import Capture, Stack


def prove_repeatable(stack: Stack, inputs: Mapping[str, Any], own: Tensor) -> None:
    if not same(main_tensor(stack.model(**inputs)), own):
        raise UnsupportedModel(
            f"{type(stack.model).__name__} gives different outputs for the same input in evaluation mode, "
            "so nothing that is done to its layers could be distinguished from chance"
        )


def prove_identity(stack: Stack, inputs: Mapping[str, Any], own: Tensor) -> None:
    ours = stack.logits(Plan.identity(stack.depth), **inputs)
    if not same(ours, own):
        raise UnsupportedModel(
            f"{type(stack.model).__name__}: the identity plan over {stack.path} does not give the model's own output "
            f"(they differ by up to {(ours - own).abs().max().item():.3g}); "
            "the model does more with its layers than run them in order"
        )


def runs_in_place(stack: Stack, inputs: Mapping[str, Any]) -> bool:
    with evaluating(stack.model), torch.no_grad():
        own = main_tensor(stack.model(**inputs))
        with stack.under(Plan.identity(stack.depth)):
            return same(main_tensor(stack.model(**inputs)), own)


def prove_free_of_position(stack: Stack, inputs: Mapping[str, Any]) -> None:
    """Raise `UnsupportedModel` unless another order gives the same in place as step by step.

    The last layer runs first and the first twice, which shows a cache slot or index in the wrong position.
    """
    sharing = stack.sharing
    descending = range(stack.depth - 1, -1, -1) if sharing is None else sharing.allowed_order(stack.depth)
    moved = Plan.of([*descending, 0])

    _, agreement = in_float32(stack, inputs, lambda inputs: both_ways(stack, moved, inputs))
    if not agreement.holds:
        raise UnsupportedModel(
            f"{type(stack.model).__name__}: its blocks compute something else when their position changes "
            f"(outputs are {agreement}), so a plan would not mean the same in place and step by step"
            + numbering(stack.blocks)
        )


def numbering(blocks: Iterable[nn.Module]) -> str:
    numbers = [min(indices(block), default=position) for position, block in enumerate(blocks)]
    if numbers == [*range(len(numbers))] or len(set(numbers)) == 1:
        return ""
    return (
        f". Its blocks number themselves {', '.join(map(str, numbers))} (layer_idx). If their list was changed by "
        "hand, make the configuration count and describe the layers of the list"
    )


def both_ways(stack: Stack, plan: Plan, inputs: Mapping[str, Any]) -> tuple[Capture, Agreement]:
    captured = stack.capture(**inputs)
    stepwise = main_tensor(stack.finish(stack.run(plan, captured), captured.inputs))
    with stack.under(plan):
        inside = main_tensor(stack.model(**inputs))
    return captured, compare(inside, stepwise, captured.state.shape[-1], len(plan.steps()))


def head_acts_by_token(stack: Stack, inputs: Mapping[str, Any], own: Tensor) -> bool:
    ids = inputs.get("input_ids")
    if ids is None or own.shape[:2] != ids.shape or own.ndim != 3 or ids.shape[1] < 3:
        return False

    def agree(inputs: Mapping[str, Any]) -> bool:
        captured = stack.capture(**inputs)
        state = stack.run(Plan.identity(stack.depth), captured)
        whole = main_tensor(stack.finish(state, captured.inputs))
        try:
            some = stack.changed(state, lambda each: each[:1, 1:-1])
            sublayer = main_tensor(stack.finish(some, {"input_ids": ids[:1, 1:-1]}))
        except (RuntimeError, ValueError, IndexError):
            return False
        return compare(sublayer, whole[:1, 1:-1], state.shape[-1], visits=1).holds

    return in_float32(stack, inputs, agree)
