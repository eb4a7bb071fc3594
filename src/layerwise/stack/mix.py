"""The weighted sum of the states that layers left behind: what a model with learned layer weights pays for in bytes.

Layer n of such a model reads n + 1 states, so that a forward pass of 12 layers reads 78 of them, and what counts is how
often each one crosses the memory bus. Written as a loop of `weight * state` and `+`, every term is written out and read
again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def mix(weights: Tensor, states: Sequence[Tensor]) -> Tensor:
    """sum_k weights[k] * states[k], for `weights` of shape (k,) and k `states` of one shape and type.

    >>> mix(torch.tensor([0.25, 0.75]), [torch.zeros(2), torch.ones(2)])
    tensor([0.7500, 0.7500])
    """
    apply: Any = _Mix.apply
    mixed: Tensor = apply(weights, *states)
    return mixed


class _Mix(torch.autograd.Function):
    """The sum, with the gradient of each weight as one dot product."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor, *states: Tensor) -> Tensor:
        ctx.save_for_backward(weights, *states)
        scales = weights.unbind()
        mixed = states[0] * scales[0]
        for state, scale in zip(states[1:], scales[1:], strict=True):
            mixed.addcmul_(state, scale)
        return mixed

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        weights, *states = ctx.saved_tensors
        gradient = gradients[0]
        flat = gradient.reshape(-1)
        products = [torch.dot(flat, state.reshape(-1)) for state in states]
        shares = [
            gradient * scale if needed else None
            for scale, needed in zip(weights.unbind(), ctx.needs_input_grad[1:], strict=True)
        ]
        return torch.stack(products).to(weights.dtype), *shares
