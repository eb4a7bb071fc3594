"""Padded batches: token masks, means over tokens, and parts of a batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from layerwise.data.batches import AnyBatch, Batch, LabeledBatch
from layerwise.errors import MeasureError
from layerwise.plan import Plan
from layerwise.stack import Stack


def pad_ids(rows: Sequence[Sequence[int]], device: torch.device) -> dict[str, Tensor]:
    """Pad token ids to one batch, and return its `input_ids` and `attention_mask`, (batch, seq) each.

    >>> pad_ids([[5], [6, 7]], torch.device("cpu"))["input_ids"].tolist()
    [[5, 0], [6, 7]]
    """
    ids = [torch.tensor(row, dtype=torch.long, device=device) for row in rows]
    mask = [torch.ones_like(row) for row in ids]
    return {
        "input_ids": pad_sequence(ids, batch_first=True),
        "attention_mask": pad_sequence(mask, batch_first=True),
    }


def token_mask(inputs: Mapping[str, Any], state: Tensor) -> Tensor:
    """Return the attention mask of `state` (batch, seq, ...) as booleans (batch, seq), all true if there is no mask."""
    mask = inputs.get("attention_mask")
    if mask is None or mask.shape != state.shape[:2]:
        return torch.ones(state.shape[:2], dtype=torch.bool, device=state.device)
    return mask.to(state.device) > 0


def run_states(stack: Stack, plan: Plan, batch: AnyBatch) -> tuple[list[Tensor], Tensor]:
    captured = stack.capture(**batch.inputs)
    states = list(stack.states(plan, captured))
    return states, token_mask(captured.inputs, states[0])


def token_mean(state: Tensor, counted: Tensor) -> Tensor:
    """Average `state` (batch, seq, ...) over counted tokens, with sums in float32 or wider; keep its dtype.

    >>> state, counted = torch.tensor([[[1.0], [3.0], [99.0]]]), torch.tensor([[True, True, False]])
    >>> token_mean(state, counted).tolist()
    [[2.0]]
    """
    shaped = counted.view(*counted.shape, *[1] * (state.ndim - 2))
    total = state.to(torch.promote_types(state.dtype, torch.float32)).masked_fill(~shaped, 0.0).sum(dim=1)
    return (total / shaped.sum(dim=1)).to(state.dtype)


def split_windows(batch: AnyBatch, count: int) -> Iterator[AnyBatch]:
    step = max(1, count)
    for start in range(0, len(batch.windows), step):
        rows = slice(start, start + step)
        if isinstance(batch, LabeledBatch):
            inputs = {name: value[rows] for name, value in batch.inputs.items()}
            given = {name: value[rows] for name, value in batch.given.items()}
            yield LabeledBatch(inputs, batch.targets[rows], batch.windows[rows], batch.metric, given)
            continue
        # Windows are sorted by length, longest first, so later parts need less padding.
        width = int(batch.attention_mask[rows].sum(dim=1).max())
        ids, mask, targets = (each[rows, :width] for each in (batch.input_ids, batch.attention_mask, batch.targets))
        yield Batch(ids, mask, targets, batch.windows[rows])


def check_finite(
    states: Sequence[Tensor], counted: Tensor, documents: Sequence[str], first: int = 0, under: str = ""
) -> None:
    """Raise `MeasureError` if a state is not finite at a token where `counted` (batch, seq) is true."""
    for number, state in enumerate(states, start=first):
        finite = state.detach().reshape(*state.shape[:2], -1).isfinite().all(dim=2) | ~counted
        if not finite.all():
            row = int((~finite).any(dim=1).nonzero()[0])
            raise MeasureError(
                f"Hidden state {number}{under} must be finite, got NaN or infinity in document {documents[row]!r}. "
                "Check the checkpoint, load the model in float32 (--dtype float32), or remove the document."
            )
