"""Held-out losses: what a model, as it is at the moment, loses on examples that are read once and kept.

Measurements that change a model and ask again, edge by edge, need the same batches dozens of times. They are collated
once, at most `EXAMPLES` of them spread evenly over what there is, and what is counted is summed over the documents that
windows of text are from: windows of one document err together and are one unit.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from layerwise.data.splits import Example
from layerwise.errors import MeasureError
from layerwise.measure.interventions.accuracy import joined, predictions_of
from layerwise.measure.interventions.edge_pruning import Losses
from layerwise.measure.language.lm_head import find_head
from layerwise.stack import Stack
from layerwise.stack.inputs import evaluating

EXAMPLES = 500
"""Images or windows that are kept, at most."""
BATCH = 64


@dataclass(frozen=True, slots=True, eq=False)
class HeldOut:
    """Batches of a model's arguments with labels, and for each example the number of its unit, shape (examples,).

    Labels of `filled_in` examples are of the very positions they stand at, as masked language models have them; else
    those of a text are the next tokens.
    """

    batches: tuple[Example, ...]
    units: NDArray[np.int64]
    filled_in: bool = False

    @classmethod
    def of(
        cls,
        examples: Any,
        collate: Callable[[Sequence[Any]], Example],
        *,
        owners: Sequence[Hashable] | None = None,
        filled_in: bool = False,
        limit: int = EXAMPLES,
    ) -> HeldOut:
        """Keep at most `limit` of `examples`; `owners` name the unit of each, by default each is its own."""
        indices = np.unique(np.linspace(0, len(examples) - 1, min(limit, len(examples))).round().astype(int))
        names = [owners[index] if owners is not None else index for index in indices]
        order = {name: number for number, name in enumerate(dict.fromkeys(names))}
        parts = (indices[start : start + BATCH] for start in range(0, len(indices), BATCH))
        batches = tuple(collate([examples[int(index)] for index in part]) for part in parts)
        return cls(batches, np.array([order[name] for name in names]), filled_in)

    def evaluate(self, stack: Stack) -> Losses:
        """What the model of `stack` loses now. Raises `MeasureError` where that is not finite."""
        parts = []
        head = find_head(stack)
        with evaluating(stack.model), torch.inference_mode():
            for batch in self.batches:
                labels = batch["labels"].to(stack.device)
                inputs = {name: tensor.to(stack.device) for name, tensor in batch.items() if name != "labels"}
                parts.append(predictions_of(stack.model, head, inputs, labels, filled_in=self.filled_in))
        predictions = joined(parts)
        if not np.isfinite(predictions.nll).all():
            raise MeasureError(f"the loss of {stack.source.name} is not finite: its edges cannot be distinguished")
        nll, counted = (np.bincount(self.units, weights=values) for values in (predictions.nll, predictions.scored))
        return Losses(nll.astype(np.float64), counted.astype(np.float64))
