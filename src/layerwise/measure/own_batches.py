"""A caller's own batches as an `EvalData`: any inputs of a model, one unit per row, scored by labels or a metric."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from layerwise.data.batches import LabelledBatch, Metric, item
from layerwise.errors import DataError
from layerwise.measure.language.evaluation_data import EvalData
from layerwise.stack import Stack

LABELS = "labels"


def own_batches(stack: Stack, batches: Iterable[Mapping[str, Any]], metric: Metric | None = None) -> EvalData:
    """Return batches as data to evaluate plans on; every row is a unit that intervals resample.

    Args:
        stack: The model that reads the batches.
        batches: Dictionaries of tensors whose first dimension is the row, such as a `DataLoader` of dictionaries gives.
            The entries that are parameters of the model's forward are its inputs.
        metric: A function of the model's output and the batch (on the model's device) that returns one number per row,
            lower is better. By default the cross-entropy of `labels`, int64 (rows,), in nats.

    Raises:
        DataError: For what is not a dictionary of tensors with equally many rows, and for missing labels.
    """
    parameters = inspect.signature(stack.model.forward).parameters
    digest = hashlib.sha256(getattr(metric, "__qualname__", str(metric)).encode())
    made: list[LabelledBatch] = []
    rows = 0
    for batch in batches:
        tensors = _tensors(batch, None if metric is not None else LABELS)
        inputs = {name: value for name, value in tensors.items() if name in parameters and name != LABELS}
        if not inputs:
            raise DataError(
                f"a batch must have inputs of the model ({', '.join(parameters)}), got {', '.join(tensors)}."
            )
        count = len(next(iter(tensors.values())))
        for name, value in sorted(tensors.items()):
            digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
            digest.update(value.cpu().contiguous().view(torch.uint8).numpy().tobytes())
        targets = torch.zeros(count, dtype=torch.int64, device="cpu") if metric is not None else tensors[LABELS]
        names = tuple(item(str(row)) for row in range(rows, rows + count))
        made.append(LabelledBatch(inputs, targets, names, metric, tensors))
        rows += count
    if not made:
        raise DataError("batches must hold at least one batch, got none.")
    name = "own batches" if metric is None else f"own batches (by {getattr(metric, '__name__', 'metric')}, not nats)"
    return EvalData(name, digest.hexdigest(), 1, None, tuple(made))


def _tensors(batch: object, needed: str | None) -> dict[str, Tensor]:
    if not isinstance(batch, Mapping):
        raise DataError(f"a batch must be a dictionary of tensors, got {type(batch).__name__}.")
    tensors = {str(name): value for name, value in batch.items() if isinstance(value, Tensor) and value.ndim}
    sizes = {len(value) for value in tensors.values()}
    if len(sizes) != 1 or 0 in sizes:
        raise DataError(f"the tensors of a batch must have equally many rows, got {sorted(sizes)}.")
    if needed is not None and (needed not in tensors or tensors[needed].ndim != 1):
        raise DataError(f"a batch must have {needed} of shape (rows,). Otherwise pass a metric(outputs, batch).")
    return tensors
