"""What a model learns from another's predictions: divergences in chunks of positions, and the Trainers that use them.

Over a vocabulary of 49,152 the logits of one position take 197 kB in float32, and a divergence holds several such
tables. `in_chunks` takes loss and gradient piece by piece in the forward pass, so that the logits of one piece exist
at a time, whatever the batch.

The Trainer of a draft is here, that of a healing in `layerwise.train.heal.trainer`. Each step of a draft is a pass of
the whole model, and one of the draft that learns what the first said. Both passes read the same examples, forward and
backward, one after the other; their gradients add up. So the teacher costs nothing but its logits, and a step costs
1 + s / L of a plain one for a draft of s of L layers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from layerwise.data.batches import IGNORED
from layerwise.errors import TrainError
from layerwise.measure.language.evaluation_data import objective_of
from layerwise.plan import Plan
from layerwise.stack.inputs import accepted, main_tensor
from layerwise.train.methods.draft import DraftOptions
from layerwise.train.trainer import PlanTrainer

CHUNK = 1 << 22
"""Logits held at once, in entries: 16 MB in float32, and a few times that with what a divergence makes of them."""

LossOf = Callable[[Tensor, slice], Tensor]
"""From some rows of states, and which rows they are, to the sum of their losses."""


def divergence(student: Tensor, teacher: Tensor) -> Tensor:
    """The sum over rows of KL(p || q) in nats, p and q the softmax of `teacher` and `student` logits (rows, classes).

    >>> float(divergence(torch.zeros(2, 4), torch.zeros(2, 4)))
    0.0
    """
    log_q, log_p = (torch.log_softmax(logits.float(), dim=-1) for logits in (student, teacher))
    return (log_p.exp() * (log_p - log_q)).sum()


def in_chunks(states: Tensor, loss_of: LossOf, rows: int, weights: Sequence[nn.Parameter]) -> Tensor:
    """The sum of `loss_of` over pieces of `rows` rows of `states` (count, width), differentiable.

    Gradients go to `states` and to those of `weights` that `loss_of` reads. They are computed with the loss, so the
    graph of a piece is gone before the next begins.
    """
    total: Tensor = _InChunks.apply(loss_of, rows, states, *weights)  # type: ignore[no-untyped-call]
    return total


class _InChunks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, loss_of: LossOf, rows: int, states: Tensor, *weights: nn.Parameter) -> Tensor:
        gradient = torch.zeros_like(states)
        of_weights = [torch.zeros_like(weight) for weight in weights]
        total = states.new_zeros((), dtype=torch.float32)
        for start in range(0, len(states), rows):
            piece = slice(start, start + rows)
            with torch.enable_grad():
                some = states[piece].detach().requires_grad_()
                loss = loss_of(some, piece)
                first, *others = torch.autograd.grad(loss, [some, *weights], allow_unused=True)
            total += loss.detach()
            gradient[piece] = first
            for held, other in zip(of_weights, others, strict=True):
                if other is not None:
                    held += other
        ctx.save_for_backward(gradient, *of_weights)
        return total

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        (scale,) = upstream
        return (None, None, *(scale * each for each in ctx.saved_tensors))


def state_distance(student: Sequence[Tensor], teacher: Sequence[Tensor], scored: Tensor | None, kind: str) -> Tensor:
    """The mean distance of states (batch, seq, width), layer by layer: `cosine` 1 - cos, or `mse`, the mean square.

    `scored` (batch, seq) says which positions count; all do without it.

    >>> state = torch.ones(1, 2, 3)
    >>> float(state_distance([state], [2 * state], None, "mse"))
    1.0
    """
    if not student or len(student) != len(teacher):
        raise TrainError(f"{len(student)} states under the plan and {len(teacher)} of the whole model do not pair up")
    distances = []
    for own, other in zip(student, teacher, strict=True):
        if kind == "cosine":
            distance = 1 - nn.functional.cosine_similarity(own.float(), other.float(), dim=-1)
        else:
            distance = (own.float() - other.float()).square().mean(dim=-1)
        distances.append(distance.mean() if scored is None else distance[scored].mean())
    return torch.stack(distances).mean()


class LearningFromPredictions(PlanTrainer):
    """A `PlanTrainer` that also learns from predictions at the scored positions: (batch, seq), or images (batch,)."""

    def __init__(self, **options: Any) -> None:
        stack = options["stack"]
        self.learns_text = getattr(stack.model, "main_input_name", None) == "input_ids"
        self.shifts = self.learns_text and objective_of(stack) == "next_token"
        super().__init__(**options)

    def scored(self, labels: Tensor) -> Tensor:
        """Where predictions are learned, of the shape of `labels`."""
        if self.shifts:
            labels = nn.functional.pad(labels[:, 1:], (0, 1), value=IGNORED)
        return labels != IGNORED

    def without_labels(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a pass whose loss the model does not compute."""
        return {name: value for name, value in accepted(self.stack.model, inputs).items() if name != "labels"}

    def mean(self, loss: Tensor, scored: Tensor, items: Any) -> Tensor:
        """The mean of a sum over the scored positions, counted as the labels' loss is: by the `items` of a step."""
        if self.model_accepts_loss_kwargs and items is not None:
            return loss * (self.accelerator.num_processes if self.args.average_tokens_across_devices else 1) / items
        return loss / scored.sum().clamp(min=1)


class DraftTrainer(LearningFromPredictions):
    """A `PlanTrainer` whose steps also teach the draft of `options` what the whole model predicts."""

    def __init__(self, *, options: DraftOptions, **others: Any) -> None:
        super().__init__(**others)
        self.options = options
        self.draft = Plan.parse(options.plan)
        self._expected: Tensor | None = None
        self._drafts = False

    def training_step(self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None) -> Tensor:
        """Both passes forward and backward; the sum of their losses."""
        inputs = self._prepare_inputs(inputs)
        loss = super().training_step(model, inputs, num_items_in_batch)
        self._drafts = True
        try:
            with self.stack.under(self.draft, single_pass=True):
                return loss + super(PlanTrainer, self).training_step(model, inputs, num_items_in_batch)
        finally:
            self._drafts, self._expected = False, None

    def compute_loss(
        self, model: nn.Module, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """The loss of the labels; in the second pass of a step, the divergence from what the first one predicted."""
        if self._drafts:
            return self._divergence(model, inputs, num_items_in_batch)
        if not model.training:
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        loss, output = super().compute_loss(model, inputs, True, num_items_in_batch)
        self._expected = main_tensor(output).detach()
        return (loss, output) if return_outputs else loss

    def _divergence(self, model: nn.Module, inputs: dict[str, Any], items: Any) -> Tensor:
        """`weight` times the mean of KL(whole || draft) over the scored positions, counted as the labels' loss is."""
        scored = self.scored(inputs["labels"])
        own = main_tensor(model(**self.without_labels(inputs)))[scored]
        assert self._expected is not None, "the whole model's pass comes first"
        expected = self._expected[scored]
        rows = max(1, CHUNK // own.shape[-1])
        loss = self.options.weight * in_chunks(own, lambda some, piece: divergence(some, expected[piece]), rows, ())
        return self.mean(loss, scored, items)
