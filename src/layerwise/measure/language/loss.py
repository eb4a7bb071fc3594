"""The loss of a hidden state: negative log-likelihood in nats, per window, without ever holding all logits.

If the model's norm and head act on every token alone (verified when the model is loaded), only the scored tokens
are sent through them, in chunks.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor

from layerwise.data.batches import AnyBatch, Batch, LabelledBatch
from layerwise.errors import MeasureError
from layerwise.measure.stats.float64 import exact_on_cpu
from layerwise.stack import Stack
from layerwise.stack.inputs import main_tensor

# Logits held at once, in entries: 64 MB in float32.
CHUNK = 1 << 24


@dataclass(frozen=True, slots=True)
class WindowLoss:
    """Summed NLL in nats over the scored tokens of one window, how many they are, and how many were the arg-max."""

    nll: float
    tokens: int
    hits: int


def window_losses(stack: Stack, state: Tensor, batch: AnyBatch) -> tuple[WindowLoss, ...]:
    """Compute the loss of every window of `batch` from the last hidden `state` (batch, seq, width).

    `nll = -sum_t log softmax(logits_t)[target_t]` over its scored tokens. Non-finite values are returned as they are.
    """
    if isinstance(batch, LabelledBatch):
        return _by_label(stack, state, batch)
    rows, columns = batch.scored.nonzero(as_tuple=True)
    rows, columns = rows.to(state.device), columns.to(state.device)
    wanted = batch.targets.to(state.device)[rows, columns]
    if stack.head_by_token:
        nll, hit = _by_token(stack, state, batch, rows, columns, wanted)
    else:
        nll, hit = _by_window(stack, state, batch, rows, columns, wanted)
    count = len(batch.windows)
    nlls = torch.zeros(count, dtype=torch.float64, device="cpu").index_add_(0, rows.cpu(), exact_on_cpu(nll))
    hits = torch.zeros(count, dtype=torch.int64, device="cpu").index_add_(0, rows.cpu(), hit.long().cpu())
    tokens = torch.bincount(rows.cpu(), minlength=count)
    return tuple(map(WindowLoss, nlls.tolist(), tokens.tolist(), hits.tolist()))


def _by_label(stack: Stack, state: Tensor, batch: LabelledBatch) -> tuple[WindowLoss, ...]:
    inputs = {name: value.to(state.device) for name, value in batch.inputs.items()}
    output = stack.finish(state, inputs)
    if batch.metric is not None:
        return _by_metric(output, batch, state.device)
    logits = main_tensor(output).clone()
    nll, hit = token_losses(logits, batch.targets.to(state.device))
    return tuple(WindowLoss(value, 1, int(right)) for value, right in zip(nll.tolist(), hit.tolist(), strict=True))


def _by_metric(output: Any, batch: LabelledBatch, device: torch.device) -> tuple[WindowLoss, ...]:
    assert batch.metric is not None
    given = {name: value.to(device) for name, value in batch.given.items()}
    values = torch.as_tensor(batch.metric(output, given), device=device)
    if values.shape != (len(batch.windows),):
        raise MeasureError(
            f"metric must return one number per row, shape ({len(batch.windows)},), got {tuple(values.shape)}."
        )
    return tuple(WindowLoss(value, 1, 0) for value in exact_on_cpu(values).tolist())


def token_losses(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """NLL in nats and arg-max correctness of every row of `logits` (rows, classes); overwrites `logits`."""
    logits = logits.float()
    best, guess = logits.max(dim=-1)
    chosen = logits.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    log_norm = logits.sub_(best.unsqueeze(-1)).exp_().sum(dim=-1).log_().add_(best)
    return log_norm - chosen, guess == targets


def _by_token(
    stack: Stack, state: Tensor, batch: Batch, rows: Tensor, columns: Tensor, wanted: Tensor
) -> tuple[Tensor, Tensor]:
    ids = batch.input_ids.to(state.device)
    length = ids.shape[1]
    chunk = max(1, CHUNK // int(stack.text_config.vocab_size))
    parts = []
    for start in range(0, len(rows), chunk):
        row, column = rows[start : start + chunk], columns[start : start + chunk]
        count = len(row)
        width = min(length, count)
        filled = torch.arange(-(-count // width) * width, device=state.device).clamp_(max=count - 1)
        row, column = row[filled], column[filled]
        packed = stack.changed(state, partial(_packed, rows=row, columns=column, width=width))
        logits = main_tensor(stack.finish(packed, {"input_ids": ids[row, column].view(-1, width)}))
        flat = logits.reshape(-1, logits.shape[-1])[:count]
        parts.append(token_losses(flat, wanted[start : start + count]))
    return torch.cat([nll for nll, _ in parts]), torch.cat([hit for _, hit in parts])


def _packed(state: Tensor, rows: Tensor, columns: Tensor, width: int) -> Tensor:
    return state[rows, columns].view(-1, width, *state.shape[2:])


def _by_window(
    stack: Stack, state: Tensor, batch: Batch, rows: Tensor, columns: Tensor, wanted: Tensor
) -> tuple[Tensor, Tensor]:
    inputs = {name: value.to(state.device) for name, value in batch.inputs.items()}
    parts = []
    for window in range(len(batch.windows)):
        mine = rows == window
        one = {name: value[window : window + 1] for name, value in inputs.items()}
        part = stack.changed(state, itemgetter(slice(window, window + 1)))
        logits = main_tensor(stack.finish(part, one))
        parts.append(token_losses(logits[0, columns[mine]], wanted[mine]))
    return torch.cat([nll for nll, _ in parts]), torch.cat([hit for _, hit in parts])
