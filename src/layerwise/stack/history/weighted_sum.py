"""The weighted sum of the states that layers left behind, at the least memory traffic.

Layer n reads n + 1 states, so the cost is how often each one crosses the memory bus. *Blocks*: all states are summed
together, a part at a time that stays in the cache of a CPU core. *Shares*: the readers of a `shared` state leave their
share of its gradient, and the last one computes it as one weighted sum. A compiler is given the plain loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from operator import add
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

# Entries of a state that are gone through at a time on a CPU: 256 KB in float32, a part of a core's own cache.
BLOCK = 1 << 16


def weighted_sum(weights: Tensor, states: Sequence[Tensor]) -> Tensor:
    """sum_k weights[k] * states[k], for `weights` of shape (k,) and k `states` of one shape and device.

    The gradient of weight k is the dot product of state k and the sum's gradient. There is no second derivative.

    >>> weighted_sum(torch.tensor([0.25, 0.75]), [torch.zeros(2), torch.ones(2)])
    tensor([0.7500, 0.7500])
    """
    if torch.compiler.is_compiling():
        return reduce(add, (weight * state for weight, state in zip(weights.unbind(), states, strict=True)))
    wide = reduce(torch.promote_types, (state.dtype for state in states))
    apply: Any = _Mix.apply
    mixed: Tensor = apply(weights, *(state.to(wide) for state in states))
    return mixed


def shared(state: Tensor) -> Tensor:
    """`state`, as several mixes are to read it: its gradient is then computed in one go, behind the last of them.

    Ask for the gradient of `state`; that of what is returned here does not exist by itself.
    """
    if torch.compiler.is_compiling() or not (torch.is_grad_enabled() and state.requires_grad):
        return state
    apply: Any = _Shared.apply
    alias: Tensor = apply(state)
    return alias


class _Shared(torch.autograd.Function):
    """The identity; its gradient is what came back directly and the sum of `shares`, which the readers filled.

    A share is the backward pass that found it, a weight and a gradient, whose product is the share.
    """

    @staticmethod
    def forward(ctx: Any, state: Tensor) -> Tensor:
        ctx.set_materialize_grads(False)
        ctx.shares = []
        return state.view_as(state)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor | None) -> Tensor | None:
        # A pass that wanted the gradients of weights alone never came here, and its shares are of no more use.
        now = _task()
        shares = [(weight, gradient) for task, weight, gradient in ctx.shares if task == now]
        ctx.shares.clear()
        (direct,) = gradients
        if not shares:
            return direct
        weights, parts = zip(*shares, strict=True)
        total = _weighted_sum(torch.stack(weights), parts)
        return total if direct is None else total.add_(direct)


class _Mix(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weights: Tensor, *states: Tensor) -> Tensor:
        ctx.save_for_backward(weights, *states)
        # The node of a shared state is the context of its `_Shared`, whose shares are wanted.
        ctx.shares = [getattr(state.grad_fn, "shares", None) for state in states]
        return _weighted_sum(weights, states)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        weights, *states = ctx.saved_tensors
        (gradient,) = gradients
        weights_needed, *states_needed = ctx.needs_input_grad
        computed: list[Tensor | None] = [_products(gradient, states).to(weights.dtype) if weights_needed else None]
        for weight, shares, needed in zip(weights.unbind(), ctx.shares, states_needed, strict=True):
            if needed and shares is not None:
                shares.append((_task(), weight, gradient))
            computed.append(gradient * weight if needed and shares is None else None)
        return tuple(computed)


def _task() -> int:
    return torch._C._current_graph_task_id()


def _weighted_sum(weights: Tensor, states: Sequence[Tensor]) -> Tensor:
    total = torch.empty_like(states[0], memory_format=torch.contiguous_format)
    first, *others = weights.unbind()
    for sublayer, start, *parts in _blocks(total, *states):
        torch.mul(start, first, out=sublayer)
        for state, weight in zip(parts, others, strict=True):
            sublayer.addcmul_(state, weight)
    return total


def _products(gradient: Tensor, states: Sequence[Tensor]) -> Tensor:
    products = [
        torch.stack([torch.dot(sublayer, state) for state in parts]) for sublayer, *parts in _blocks(gradient, *states)
    ]
    return torch.stack(products).sum(0, dtype=torch.promote_types(gradient.dtype, torch.float32))


def _blocks(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    size = BLOCK if tensors[0].device.type == "cpu" else max(1, tensors[0].numel())
    return zip(*(torch.split(tensor.reshape(-1), size) for tensor in tensors), strict=True)
