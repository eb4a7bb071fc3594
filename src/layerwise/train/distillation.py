"""Distillation losses: the KL divergence of predictions, and the distance of hidden states.

The logits of many positions take gigabytes, so `in_chunks` computes the loss and its gradient for a few at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from layerwise.errors import TrainError

CHUNK = 1 << 22
"""Maximum number of logits in memory at once: 16 MB in float32, and a few times that with intermediate results."""

LossOf = Callable[[Tensor, slice], Tensor]
"""Function that returns the summed loss of some rows of states, given these rows and their indices."""


def divergence(student: Tensor, teacher: Tensor) -> Tensor:
    """Return KL(p || q) in nats, summed over rows.

    p is the softmax of the `teacher` logits and q that of the `student` logits, both `(rows, classes)`.

    >>> float(divergence(torch.zeros(2, 4), torch.zeros(2, 4)))
    0.0
    """
    log_q, log_p = (torch.log_softmax(logits.float(), dim=-1) for logits in (student, teacher))
    return (log_p.exp() * (log_p - log_q)).sum()


def in_chunks(states: Tensor, loss_of: LossOf, rows: int, weights: Sequence[nn.Parameter]) -> Tensor:
    """Return the differentiable sum of `loss_of` over chunks of `rows` rows of `states` `(count, width)`.

    The gradients of `states` and `weights` are computed together with the loss, so that the graph of each chunk is
    freed at once.
    """
    total: Tensor = _InChunks.apply(loss_of, rows, states, *weights)  # type: ignore[no-untyped-call]
    return total


class _InChunks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, loss_of: LossOf, rows: int, states: Tensor, *weights: nn.Parameter) -> Tensor:
        gradient = torch.zeros_like(states)
        weight_gradients = [torch.zeros_like(weight) for weight in weights]
        total = states.new_zeros((), dtype=torch.float32)
        for start in range(0, len(states), rows):
            piece = slice(start, start + rows)
            with torch.enable_grad():
                some = states[piece].detach().requires_grad_()
                loss = loss_of(some, piece)
                first, *others = torch.autograd.grad(loss, [some, *weights], allow_unused=True)
            total += loss.detach()
            gradient[piece] = first
            for accumulated, other in zip(weight_gradients, others, strict=True):
                if other is not None:
                    accumulated += other
        ctx.save_for_backward(gradient, *weight_gradients)
        return total

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        (scale,) = upstream
        return (None, None, *(scale * each for each in ctx.saved_tensors))


def state_distance(student: Sequence[Tensor], teacher: Sequence[Tensor], scored: Tensor | None, kind: str) -> Tensor:
    """Return the distance between the states `(batch, seq, width)` of student and teacher, averaged over layers.

    `kind` is `cosine` (1 - cos) or `mse`. If a mask `scored` `(batch, seq)` is given, only positions where it is true
    count.

    >>> state = torch.ones(1, 2, 3)
    >>> float(state_distance([state], [2 * state], None, "mse"))
    1.0
    """
    if not student or len(student) != len(teacher):
        raise TrainError(
            f"student and teacher must have the same number of states, got {len(student)} and {len(teacher)}."
        )
    distances = []
    for reached, target in zip(student, teacher, strict=True):
        if kind == "cosine":
            distance = 1 - nn.functional.cosine_similarity(reached.float(), target.float(), dim=-1)
        else:
            distance = (reached.float() - target.float()).square().mean(dim=-1)
        distances.append(distance.mean() if scored is None else distance[scored].mean())
    return torch.stack(distances).mean()
