"""Accuracy and loss of a model under plans, for each example."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader

from layerwise.data.batches import IGNORED
from layerwise.errors import MeasureError, ModelError
from layerwise.measure.language.loss import CHUNK, LanguageModelHead, ScoredTokens, find_head, token_losses
from layerwise.measure.stats.float64 import to_float64_cpu
from layerwise.plan import Plan
from layerwise.stack import Stack
from layerwise.stack.inputs import evaluating, main_tensor

Numbers = NDArray[np.float64]
BATCH = 256
TOP = 5


@dataclass(frozen=True, slots=True, eq=False)
class Predictions:
    """Predictions for examples (images with one label, or windows of text), in arrays of shape (examples,).

    `hits` is the number of correct predictions, and `hits_top5` the number of labels among the five most likely classes
    (None for text and for fewer than six classes). `nll` is the summed loss in nats, and `scored` the number of labels.
    """

    hits: Numbers
    hits_top5: Numbers | None
    nll: Numbers
    scored: Numbers

    @property
    def accuracy(self) -> float:
        return float(self.hits.sum() / self.scored.sum())

    @property
    def accuracy_top5(self) -> float | None:
        return None if self.hits_top5 is None else float(self.hits_top5.sum() / self.scored.sum())

    @property
    def mean_nll(self) -> float:
        return float(self.nll.sum() / self.scored.sum())


PlanByBatch = Callable[[int], Plan]
"""Returns the plan of a batch, given its number."""


def evaluate(
    stack: Stack,
    plan: Plan | PlanByBatch,
    examples: Any,
    collate: Callable[[Sequence[Any]], dict[str, Tensor]],
    *,
    batch_size: int = BATCH,
    filled_in: bool = False,
) -> Predictions:
    """Evaluate every example under `plan`, or under one plan per batch.

    `collate` combines examples into a batch of tensors that includes `labels`. If `filled_in`, logits predict the label
    at the same position (masked language models), not at the next one. Raises `MeasureError` if a loss is not finite.
    """
    parts = []
    head = find_head(stack)
    with evaluating(stack.model), torch.inference_mode():
        for number, batch in enumerate(DataLoader(examples, batch_size=batch_size, collate_fn=collate)):
            of_batch = plan if isinstance(plan, Plan) else plan(number)
            inputs, labels = split_labels(batch, stack.device)
            under = partial(stack.under, of_batch, single_pass=True)
            part = predict_batch(stack.model, head, inputs, labels, filled_in=filled_in, under=under)
            if not np.isfinite(part.nll).all():
                raise MeasureError(f"The loss under {of_batch} must be finite, got NaN or infinity. Omit this plan.")
            parts.append(part)
    return concatenate(parts)


def split_labels(batch: Mapping[str, Tensor], device: torch.device) -> tuple[dict[str, Tensor], Tensor]:
    placed = {name: tensor.to(device) for name, tensor in batch.items()}
    labels = placed.pop("labels")
    return placed, labels


def predict_batch(
    model: nn.Module,
    head: LanguageModelHead | None,
    inputs: Mapping[str, Tensor],
    labels: Tensor,
    *,
    filled_in: bool = False,
    under: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> Predictions:
    """Predict one batch within the context `under()`.

    If there is a `head`, logits of text are computed in chunks of tokens, otherwise in chunks of rows.
    """
    if labels.ndim == 1:
        with under():
            return score_logits(main_tensor(model(**inputs)), labels)
    targets = labels if filled_in else _shift_labels(labels)
    if head is not None:
        with under():
            states, output = head.states(inputs)
        return _sum_by_example(targets, head.losses(states, output, inputs["input_ids"], targets))
    config: Any = getattr(model, "config", None)
    vocabulary = 1 if config is None else int(config.get_text_config().vocab_size)
    rows = max(1, max(1, CHUNK // vocabulary) // labels.shape[1])
    parts = []
    with under():
        for start in range(0, len(labels), rows):
            chunk = slice(start, start + rows)
            logits = main_tensor(model(**{name: value[chunk] for name, value in inputs.items()}))
            parts.append(_score_tokens(logits, targets[chunk]))
    return concatenate(parts)


def score_logits(logits: Tensor, labels: Tensor) -> Predictions:
    """Compare logits (batch, classes) with labels (batch,), or (batch, seq, vocabulary) with (batch, seq).

    Logits of text predict the label at the next position, as in causal language models.
    """
    if logits.ndim == 3:
        return _score_tokens(logits, _shift_labels(labels))
    nll = functional.cross_entropy(logits.float(), labels, ignore_index=IGNORED, reduction="none")
    counted = labels != IGNORED
    hit = (logits.argmax(-1) == labels) & counted
    top5 = None
    if logits.shape[-1] > TOP:
        top5 = _numbers((logits.topk(TOP, dim=-1).indices == labels[:, None]).any(-1) & counted)
    return Predictions(_numbers(hit), top5, _numbers(nll * counted), _numbers(counted))


def _shift_labels(labels: Tensor) -> Tensor:
    return functional.pad(labels[:, 1:], (0, 1), value=IGNORED)


def _score_tokens(logits: Tensor, targets: Tensor) -> Predictions:
    rows, columns = (targets != IGNORED).nonzero(as_tuple=True)
    return _sum_by_example(targets, [(rows, *token_losses(logits[rows, columns], targets[rows, columns]))])


def _sum_by_example(targets: Tensor, parts: Iterable[ScoredTokens]) -> Predictions:
    hits, nats = np.zeros(len(targets)), np.zeros(len(targets))
    for rows, nll, hit in parts:
        np.add.at(nats, rows.cpu().numpy(), _numbers(nll))
        np.add.at(hits, rows.cpu().numpy(), _numbers(hit))
    return Predictions(hits, None, nats, _numbers((targets != IGNORED).sum(dim=1)))


def concatenate(parts: Sequence[Predictions]) -> Predictions:
    top5 = [part.hits_top5 for part in parts if part.hits_top5 is not None]
    return Predictions(
        np.concatenate([part.hits for part in parts]),
        np.concatenate(top5) if len(top5) == len(parts) else None,
        np.concatenate([part.nll for part in parts]),
        np.concatenate([part.scored for part in parts]),
    )


def mean_logits(logits: Iterable[Tensor]) -> Tensor:
    """Average the logits of an ensemble in float32 or wider (Freiberger et al. 2024, section 4.4).

    >>> mean_logits([torch.tensor([1.0, 3.0]), torch.tensor([3.0, 5.0])]).tolist()
    [2.0, 4.0]

    Raises `ModelError` if there are no logits or their shapes differ.
    """
    total: Tensor | None = None
    count = 0
    for each in logits:
        wide = each.to(torch.promote_types(each.dtype, torch.float32))
        if total is not None and total.shape != wide.shape:
            raise ModelError(
                f"The members of an ensemble must have logits of the same shape, got {tuple(total.shape)} and "
                f"{tuple(wide.shape)}. Use members with the same classes."
            )
        total = wide if total is None else total + wide
        count += 1
    if total is None:
        raise ModelError("An ensemble must have at least one member, got none.")
    return total / count


def _numbers(values: Tensor) -> Numbers:
    return to_float64_cpu(values).numpy()
