"""The loss of a language model in validation, without ever holding all logits.

Validation runs 64 texts at once; over a vocabulary of 49,152 and 512 tokens its logits take 6.4 GB in float32.
So the body runs once, and the scored positions alone are sent through the head, in chunks
(`layerwise.measure.language.lm_head`). It is the loss of the model itself to rounding, which is tried on random tokens;
a model whose own loss is another (of experts, say, or with a weight for each token) keeps its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from layerwise.data.batches import IGNORED
from layerwise.errors import MeasureError
from layerwise.measure.language.evaluation_data import objective_of
from layerwise.measure.language.lm_head import LanguageModelHead, find_head
from layerwise.stack import Stack
from layerwise.stack.inputs import accepted, evaluating, example_inputs

_ROUNDING = 64
"""Units of rounding between two sums of as many losses."""


@dataclass(frozen=True, slots=True, eq=False)
class ChunkedLoss:
    """The mean loss in nats of the labelled tokens of a batch; labels are those of the next position with `shifts`."""

    head: LanguageModelHead
    shifts: bool

    def __call__(self, inputs: Mapping[str, Any], items: Tensor | int | None = None) -> Tensor:
        """The loss of `inputs`, which hold `labels` (batch, seq), `IGNORED` where nothing is to be predicted.

        With `items`, the sum of the losses is divided by that number instead of by the labelled tokens.
        """
        labels: Tensor = inputs["labels"]
        if self.shifts:
            labels = nn.functional.pad(labels[:, 1:], (0, 1), value=IGNORED)
        given = {name: value for name, value in inputs.items() if name != "labels"}
        states, output = self.head.states(given)
        pieces = [nats.sum() for _, nats, _ in self.head.losses(states, output, inputs["input_ids"], labels)]
        # A batch in which nothing is scored has no mean, as in the model's own loss.
        total = torch.stack(pieces).sum() if pieces else states.new_zeros((), dtype=torch.float32)
        return total / ((labels != IGNORED).sum() if items is None else items)


def find_chunked_loss(stack: Stack) -> ChunkedLoss | None:
    """The loss of the model of `stack` in chunks; `None` where it has no such head, or another loss."""
    head = find_head(stack)
    if head is None:
        return None
    try:
        shifts = objective_of(stack) == "next_token"
    except MeasureError:
        return None
    loss = ChunkedLoss(head, shifts)
    inputs = example_inputs(stack.model) or {}
    labels = inputs["input_ids"].clone()
    labels[:, ::3] = IGNORED
    with evaluating(stack.model), torch.inference_mode():
        own = getattr(stack.model(**accepted(stack.model, {**inputs, "labels": labels})), "loss", None)
        if not isinstance(own, Tensor) or own.ndim:
            return None
        difference = (loss({**inputs, "labels": labels}) - own.float()).abs()
    return loss if bool(difference <= _ROUNDING * torch.finfo(stack.dtype).eps * own.abs()) else None
