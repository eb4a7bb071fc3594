"""Hugging Face Trainer that runs every forward pass under a plan.

In training, the plan depends only on the optimizer step and the pass within it; in validation, on the batch. Between
passes the model is the original one. If the model has the usual loss, validation computes the logits of scored
positions only, in chunks (`ChunkedLoss`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils.data import Sampler

from layerwise.data.batches import IGNORED
from layerwise.errors import MeasureError
from layerwise.measure.language.evaluation_data import find_objective
from layerwise.measure.language.loss import LanguageModelHead, find_head
from layerwise.plan import Plan
from layerwise.plan.samplers import SeededSampler
from layerwise.stack import Stack
from layerwise.stack.inputs import accepted, evaluating, example_inputs
from layerwise.train.layer_mixing import LayerMixing
from layerwise.train.position import PositionPrediction
from layerwise.train.validation import DividedValidation

if TYPE_CHECKING:
    from layerwise.train.phases.runner import GrowthRunner


class PlanTrainer(DividedValidation):
    """Trainer that runs every forward pass under a plan.

    `draws` gives the plans of training passes, and `validation` those of validation batches. `added` is the module of
    an extension, if any. The loss of a `PositionPrediction` is added to that of the model, and the layer weights of a
    `LayerMixing` have a separate learning rate. `order` is the order of the training examples (default: the Trainer's).
    """

    def __init__(
        self,
        *,
        stack: Stack,
        draws: SeededSampler | GrowthRunner,
        validation: SeededSampler | GrowthRunner,
        added: object = None,
        order: Sampler[int] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(model=stack.model, tokenizer=stack.tokenizer, **options)
        self.stack = stack
        self.draws = draws
        self.validation = validation
        self.added = added
        self.order = order
        self._step = -1
        self._pass = 0
        self._plans: list[Plan] = []
        self._batch = 0
        self._chunked: ChunkedLoss | None = None
        self._looked = False

    def _get_train_sampler(self, train_dataset: Any = None) -> Sampler[int] | None:
        return super()._get_train_sampler(train_dataset) if self.order is None else self.order

    def create_optimizer(self, *args: Any, **kwargs: Any) -> Any:
        first = self.optimizer is None
        optimizer = super().create_optimizer(*args, **kwargs)
        if not isinstance(self.added, LayerMixing) or not first:
            return optimizer
        weights, rate = self.added.raw, self.args.learning_rate * self.added.options.rate
        for group in optimizer.param_groups:
            group["params"] = [parameter for parameter in group["params"] if parameter is not weights]
        optimizer.add_param_group({"params": [weights], "lr": rate, "weight_decay": 0.0})
        return optimizer

    def floating_point_ops(self, inputs: dict[str, Any]) -> int:
        """Return 6 operations per parameter and position. A layer counts as often as it ran. Return 0 if unknown."""
        count = getattr(self.stack.model, "num_parameters", None)
        if count is None or not self._plans:
            return 0
        layers = [sum(each.numel() for each in self.stack.block(at).parameters()) for at in range(self.stack.depth)]
        around = int(count(exclude_embeddings=True)) - sum(layers)
        visited = sum(layers[step.layer] for step in self._plans[-1].steps())
        return 6 * positions(getattr(self.stack.model, "config", None), inputs) * (around + visited)

    def training_step(self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None) -> Tensor:
        plan = self.draws.at(*self._next_index())
        self._plans.append(plan)
        with self.stack.under(plan, single_pass=True):
            return super().training_step(model, inputs, num_items_in_batch)

    def where(self, passes: int) -> str:
        plans = [str(plan) for plan in dict.fromkeys(self._plans[-passes:])]
        return f" under the plan{'s' * (len(plans) > 1)} {', '.join(plans)}"

    def _next_index(self) -> tuple[int, int]:
        if self.state.global_step != self._step:
            self._step, self._pass = self.state.global_step, 0
            self._plans.clear()
        index = (self._step, self._pass)
        self._pass += 1
        return index

    def compute_loss(
        self, model: nn.Module, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        chunked = None if model.training or return_outputs else self._chunked_loss()
        if chunked is not None:
            shared = num_items_in_batch is not None and self.args.average_tokens_across_devices
            return chunked(inputs, num_items_in_batch) * (self.accelerator.num_processes if shared else 1)
        value = super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        if not isinstance(self.added, PositionPrediction):
            return value
        extra = self.added.loss()
        if model.training and self.model_accepts_loss_kwargs and num_items_in_batch is not None:
            # The task loss is divided by the items of the step, so this mean over the pass is scaled alike.
            extra = extra / self.current_gradient_accumulation_steps
        return (value[0] + extra, value[1]) if return_outputs else value + extra

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        self._batch = 0
        return super().evaluate(*args, **kwargs)

    def prediction_step(
        self, model: nn.Module, inputs: dict[str, Any], prediction_loss_only: bool, ignore_keys: list[str] | None = None
    ) -> Any:
        """Run a validation batch under its plan. If only the loss is needed, compute it in chunks."""
        plan = self.validation.at(self._batch)
        self._batch += 1
        chunked = prediction_loss_only and "labels" in inputs and self._chunked_loss() is not None
        with self.stack.under(plan, single_pass=True):
            if not chunked:
                return super().prediction_step(model, inputs, prediction_loss_only, ignore_keys)
            inputs = self._prepare_inputs(inputs)
            items = self._get_num_items_in_batch([inputs], self.args.device)
            with torch.no_grad(), self.compute_loss_context_manager():
                return self.compute_loss(model, inputs, num_items_in_batch=items).detach().mean(), None, None

    def _chunked_loss(self) -> ChunkedLoss | None:
        """Return the chunked validation loss, or None if it cannot replace the loss of the Trainer.

        It is not used with compiled blocks, because checking it would compile additional graphs.
        """
        has_own_loss = self.label_smoother is not None or self.compute_loss_func is not None
        is_divided = self.is_fsdp_enabled or self.is_deepspeed_enabled or self.args.world_size > 1
        if has_own_loss or is_divided or self.compiled or isinstance(self.added, PositionPrediction):
            return None
        if not self._looked:
            self._chunked, self._looked = find_chunked_loss(self.stack), True
        return self._chunked


def positions(config: Any, inputs: Mapping[str, Any]) -> int:
    """Count the positions in a batch: the tokens, or the patches and one class token per image; 0 if unknown."""
    if "input_ids" in inputs:
        return int(inputs["input_ids"].numel())
    patch, pixels = getattr(config, "patch_size", None), inputs.get("pixel_values")
    if not isinstance(patch, int) or pixels is None or pixels.ndim != 4:
        return 0
    images, _, height, width = pixels.shape
    return int(images) * ((height // patch) * (width // patch) + 1)


_ROUNDING = 64


@dataclass(frozen=True, slots=True, eq=False)
class ChunkedLoss:
    """Mean cross-entropy of labeled tokens in nats; if `shifts`, a position predicts the label of the next one."""

    head: LanguageModelHead
    shifts: bool

    def __call__(self, inputs: Mapping[str, Any], items: Tensor | int | None = None) -> Tensor:
        """Return the summed loss of a labeled batch, divided by `items` (default: the number of labels)."""
        labels: Tensor = inputs["labels"]
        if self.shifts:
            labels = nn.functional.pad(labels[:, 1:], (0, 1), value=IGNORED)
        given = {name: value for name, value in inputs.items() if name != "labels"}
        states, output = self.head.states(given)
        pieces = [nats.sum() for _, nats, _ in self.head.losses(states, output, inputs["input_ids"], labels)]
        # Without labeled tokens the mean is NaN, like the loss of the model.
        total = torch.stack(pieces).sum() if pieces else states.new_zeros((), dtype=torch.float32)
        return total / ((labels != IGNORED).sum() if items is None else items)


def find_chunked_loss(stack: Stack) -> ChunkedLoss | None:
    """Return a chunked loss equal to the model's loss, or None if its head or loss does not allow that."""
    head = find_head(stack)
    if head is None:
        return None
    try:
        shifts = find_objective(stack) == "next_token"
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
