"""Which positions of a batch are tokens, their states, and means over them: what stands at padding says nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from layerwise.data.batches import AnyBatch
from layerwise.plan import Plan
from layerwise.stack import Stack


def counted_tokens(inputs: Mapping[str, Any], state: Tensor) -> Tensor:
    """(batch, seq) booleans: which positions of `state`, (batch, seq, ...), are tokens and not padding.

    They are those that the attention mask among the model's `inputs` says; all of them where there is no mask of that
    shape, as for images.
    """
    mask = inputs.get("attention_mask")
    if mask is None or mask.shape != state.shape[:2]:
        return torch.ones(state.shape[:2], dtype=torch.bool, device=state.device)
    return mask.to(state.device) > 0


def counted_states(stack: Stack, plan: Plan, batch: AnyBatch) -> tuple[list[Tensor], Tensor]:
    """The states of a batch before `plan` and after each of its steps, and which of their tokens are counted."""
    inputs = {name: value.to(stack.device) for name, value in batch.inputs.items()}
    states = list(stack.states(plan, stack.capture(**inputs)))
    return states, counted_tokens(inputs, states[0])


def token_mean(state: Tensor, counted: Tensor) -> Tensor:
    """The mean of each row of `state` (batch, seq, ...) over its counted tokens, (batch, ...).

    It is summed in float32 at least and has the dtype of `state`. Padding may be anything, even not a number.

    >>> state, counted = torch.tensor([[[1.0], [3.0], [99.0]]]), torch.tensor([[True, True, False]])
    >>> token_mean(state, counted).tolist()
    [[2.0]]
    """
    shaped = counted.view(*counted.shape, *[1] * (state.ndim - 2))
    total = state.to(torch.promote_types(state.dtype, torch.float32)).masked_fill(~shaped, 0.0).sum(dim=1)
    return (total / shaped.sum(dim=1)).to(state.dtype)
