"""A Trainer that stops before numbers that are not finite reach the weights.

A loss that is not finite says so itself. A finite loss may have a gradient that is not (a square root at zero, an
overflow on the way back), which one step writes into every weight, and the next checkpoint keeps. So both are looked
at: the loss after every pass, and before every step the norm of the gradient, which the parent takes in any case. It
is that of the whole gradient also where several processes hold pieces of the model or of the batch.

With float16 a gradient that is infinite at the present loss scale is a matter of course: the scaler skips the step and
halves the scale, and nothing reaches the weights. It is an error when the scale has fallen so far that float16 would
lose the loss itself.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from transformers import Trainer

from layerwise.errors import TrainError

_LEAST_SCALE = torch.finfo(torch.float16).tiny
"""A loss of 1 times less than this is no normal number of float16."""


class FiniteTrainer(Trainer):
    """A Trainer that raises `TrainError` at a loss, and before a step from a gradient, that is not finite."""

    accelerator: Any

    def _run_epoch(self, *args: Any, **options: Any) -> None:
        """The parent's epoch; none where a checkpoint of the last step is resumed.

        The parent asks whether its steps are done after a step only, so that a training that ended within an epoch, and
        was killed before its model was written, would take one step more.
        """
        if self.state.global_step >= self.state.max_steps:
            self.control.should_training_stop = True
            return
        super()._run_epoch(*args, **options)

    def training_step(self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None) -> Tensor:
        """One pass forward and backward. Raises `TrainError` at a loss that is not finite."""
        loss: Tensor = super().training_step(model, inputs, num_items_in_batch)
        if not torch.isfinite(loss).all():
            raise self._refusal(f"the loss of step {self.state.global_step + 1} is {loss.item()}{self.where(1)}")
        return loss

    def where(self, passes: int) -> str:
        """What else there is to say of the last `passes` passes, with a space before it."""
        return ""

    def consequence(self) -> str:
        """What became of the training, and what to do."""
        return (
            f"nothing of it reached the weights, and the last good checkpoint is kept in {self.args.output_dir}. "
            "Use a smaller learning rate, or float32 instead of a half precision"
        )

    def _get_grad_norm(self, model: nn.Module, grad_norm: Any = None) -> Any:
        """The parent's norm, taken between the last pass of a step and the step. Raises `TrainError` for one that is
        not finite, unless a scaler will skip the step."""
        norm = super()._get_grad_norm(model, grad_norm)
        if norm is None:  # DeepSpeed steps by itself, before this check
            return norm
        size = float(norm.full_tensor() if hasattr(norm, "full_tensor") else norm)
        if not math.isfinite(size) and not self._skips():
            where = self.where(self.args.gradient_accumulation_steps)
            raise self._refusal(
                f"the loss of step {self.state.global_step + 1} is finite and its gradient is {size}{where}"
            )
        return norm

    def _skips(self) -> bool:
        """Whether the loss is scaled, and can be scaled by less."""
        scaler = self.accelerator.scaler
        return scaler is not None and scaler.get_scale() > _LEAST_SCALE

    def _refusal(self, what: str) -> TrainError:
        return TrainError(f"{what}; {self.consequence()}")
