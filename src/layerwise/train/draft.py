"""The Trainer of a draft: each step is a pass of the whole model, and one of the draft that learns what the first said.

Both passes read the same examples, forward and backward, one after the other; their gradients add up. So the teacher
costs nothing but its logits, and a step costs 1 + s / L of a plain one for a draft of s of L layers.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from layerwise.data.batches import IGNORED
from layerwise.measure.language.evaluation_data import objective_of
from layerwise.plan import Plan
from layerwise.stack.inputs import accepted, main_tensor
from layerwise.train.heal.losses import CHUNK, divergence, in_chunks
from layerwise.train.methods.draft import DraftOptions
from layerwise.train.trainer import PlanTrainer


class DraftTrainer(PlanTrainer):
    """A `PlanTrainer` whose steps also teach the draft of `options` what the whole model predicts."""

    def __init__(self, *, options: DraftOptions, **others: Any) -> None:
        super().__init__(**others)
        self.options = options
        self.draft = Plan.parse(options.plan)
        is_text = getattr(self.stack.model, "main_input_name", None) == "input_ids"
        self.shifts = is_text and objective_of(self.stack) == "next_token"
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
        labels = inputs["labels"]
        if self.shifts:
            labels = nn.functional.pad(labels[:, 1:], (0, 1), value=IGNORED)
        scored = labels != IGNORED
        given = {name: value for name, value in accepted(self.stack.model, inputs).items() if name != "labels"}
        own = main_tensor(model(**given))[scored]
        assert self._expected is not None, "the whole model's pass comes first"
        expected = self._expected[scored]
        rows = max(1, CHUNK // own.shape[-1])
        loss = self.options.weight * in_chunks(own, lambda some, piece: divergence(some, expected[piece]), rows, ())
        if self.model_accepts_loss_kwargs and items is not None:
            return loss * (self.accelerator.num_processes if self.args.average_tokens_across_devices else 1) / items
        return loss / scored.sum().clamp(min=1)
