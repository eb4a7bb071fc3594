"""Compute the update that each branch of a layer adds to the residual stream, as a difference of states.

A branch's submodule may return something else: Granite scales it, BEiT multiplies it by learned factors, Falcon adds to
it. So the layer runs again without the later branch (`layerwise.stack.branches.only`):

    first branch    layer with the first branch alone - state before        second branch    state after - the same
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor, nn

from layerwise.errors import UnsupportedModel
from layerwise.measure.language.evaluation_data import EvalData
from layerwise.plan import Sublayer
from layerwise.stack import Stack
from layerwise.stack.branches import Branches, Edit, Pair, edited, only
from layerwise.stack.inputs import evaluating


@contextmanager
def completing(block: nn.Module, pair: Pair) -> Iterator[list[Sublayer]]:
    order: list[Sublayer] = []
    with ExitStack() as hooks:
        for part, path in pair.items():
            hooks.enter_context(edited(block, path, _noting(order, part)))
        yield order


def additions(
    block: nn.Module, pair: Pair, order: Sequence[Sublayer], before: Tensor, after: Tensor, run: Callable[[], Tensor]
) -> dict[Sublayer, Tensor]:
    """Return what each branch of `block` adds to `before` to reach `after`, in float32 or wider.

    `run` runs the block on `before` and returns its state; it is called once. `order` is that of `completing`.
    """
    first, second = order[:2]
    with only(block, pair, first):
        middle = run()
    return {first: difference(middle, before), second: difference(after, middle)}


def difference(after: Tensor, before: Tensor) -> Tensor:
    """`after - before`, in float32 at least: half precision would round it again."""
    dtype = torch.promote_types(after.dtype, torch.float32)
    return after.to(dtype) - before.to(dtype)


def _noting(order: list[Sublayer], part: Sublayer) -> Edit:
    def note(output: Tensor) -> Tensor:
        order.append(part)
        return output

    return note


def split(stack: Stack, data: EvalData) -> Branches | None:
    """The branches of `stack`, found on the first window of `data`; `None` for a model that cannot be split."""
    inputs = {name: value[:1].to(stack.device) for name, value in data.batches[0].inputs.items()}
    with evaluating(stack.model), torch.no_grad():
        captured = stack.capture(**inputs)
    try:
        return stack.branches(captured)
    except UnsupportedModel:
        return None
