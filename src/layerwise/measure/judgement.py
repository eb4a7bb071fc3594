"""How well a model does under plans: hits and losses, example by example.

An example is an image with one label or a window of text with a label at every scored position. What is counted is the
same for both, so every question about robustness is asked once: `judge` runs the model in place under a plan for each
batch, and `Outcome` keeps one row an example, so that two outcomes on the same examples can be compared in pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

from layerwise.data.batches import IGNORED
from layerwise.errors import MeasureError
from layerwise.measure.float64 import exact_on_cpu
from layerwise.plan import Plan
from layerwise.stack import Stack
from layerwise.stack.inputs import evaluating, main_tensor

Numbers = NDArray[np.float64]
BATCH = 256
TOP = 5


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """What a model did on some examples, all arrays of shape (examples,).

    `hits` counts the scored labels of the example that were the model's first choice, `hits_top5` those among its first
    five (`None` with fewer than six classes, and for text), `nll` is their summed negative log-likelihood in nats, and
    `scored` how many labels there were: 1 for an image, the scored tokens for a window of text.
    """

    hits: Numbers
    hits_top5: Numbers | None
    nll: Numbers
    scored: Numbers

    @property
    def accuracy(self) -> float:
        """The share of scored labels that were the first choice."""
        return float(self.hits.sum() / self.scored.sum())

    @property
    def accuracy_top5(self) -> float | None:
        """The share of scored labels among the first five choices."""
        return None if self.hits_top5 is None else float(self.hits_top5.sum() / self.scored.sum())

    @property
    def mean_nll(self) -> float:
        """Nats for each scored label."""
        return float(self.nll.sum() / self.scored.sum())


PlanOf = Callable[[int], Plan]
"""From the number of a batch to the plan that it runs under."""


def judge(
    stack: Stack,
    plan: Plan | str | PlanOf,
    examples: Any,
    collate: Callable[[Sequence[Any]], dict[str, Tensor]],
    *,
    batch_size: int = BATCH,
) -> Outcome:
    """Run the model in place on every example, batch by batch in their order, under `plan` or under one for each batch.

    Raises `MeasureError` when an example's loss is not finite, and names the plan.
    """
    parts = []
    with evaluating(stack.model), torch.inference_mode():
        for number, batch in enumerate(DataLoader(examples, batch_size=batch_size, collate_fn=collate)):
            chosen = plan(number) if callable(plan) else Plan.parse(plan)
            labels = batch["labels"].to(stack.device)
            inputs = {name: tensor.to(stack.device) for name, tensor in batch.items() if name != "labels"}
            with stack.under(chosen, single_pass=True):
                logits = main_tensor(stack.model(**inputs))
            part = scored(logits, labels)
            if not np.isfinite(part.nll).all():
                raise MeasureError(
                    f"the loss is not finite under {chosen}: this model cannot be judged under that plan"
                )
            parts.append(part)
    return joined(parts)


def scored(logits: Tensor, labels: Tensor) -> Outcome:
    """The outcome of one batch.

    `logits` are (batch, classes) with `labels` (batch,), or (batch, seq, vocabulary) with `labels` (batch, seq), where
    the logits at a position predict the label of the next one, as in every causal language model of transformers.
    """
    if logits.ndim == 3:
        logits, labels = logits[:, :-1].flatten(0, 1), labels[:, 1:]
    rows = labels.shape[0]
    flat = labels.reshape(-1)
    nll = cross_entropy(logits.float(), flat, ignore_index=IGNORED, reduction="none")
    counted = flat != IGNORED
    hit = (logits.argmax(-1) == flat) & counted
    top5 = None
    if labels.ndim == 1 and logits.shape[-1] > TOP:
        top5 = _rows((logits.topk(TOP, dim=-1).indices == flat[:, None]).any(-1) & counted, rows)
    return Outcome(_rows(hit, rows), top5, _rows(nll * counted, rows), _rows(counted, rows))


def joined(parts: Sequence[Outcome]) -> Outcome:
    """The outcomes of several batches, one after the other."""
    top5 = [part.hits_top5 for part in parts if part.hits_top5 is not None]
    return Outcome(
        np.concatenate([part.hits for part in parts]),
        np.concatenate(top5) if len(top5) == len(parts) else None,
        np.concatenate([part.nll for part in parts]),
        np.concatenate([part.scored for part in parts]),
    )


def _rows(values: Tensor, rows: int) -> Numbers:
    """Sums over the positions of each example."""
    return exact_on_cpu(values).reshape(rows, -1).sum(dim=1).numpy()
