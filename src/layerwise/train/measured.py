"""Base Trainer of every training run, which stops if the loss or a gradient is not finite, and logs its speed.

With float16, an infinite gradient is an error only if the loss scale cannot be reduced further. The measurements are
saved in checkpoints, so a resumed run continues the same log.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import broadcast_object_list
from torch import Tensor, nn
from transformers import PreTrainedModel, PrinterCallback, Trainer, TrainerCallback

from layerwise.bounded import UnreadableError, read_json
from layerwise.errors import TrainError
from layerwise.results.run import write_whole
from layerwise.stack.compilation import compiled_blocks
from layerwise.train.sharding import check_sharding, only_with_moments
from layerwise.train.training_log import Pace, Progress, summarize_log

RUNNING_LOSS = "running_loss.json"
"""Checkpoint file with each process's sum of losses since the last log entry, and the step of that entry."""

_MIN_SCALE = torch.finfo(torch.float16).tiny

_MAX_STEPS_BETWEEN_CHECKS = 1_000


class MeasuredTrainer(Trainer):
    """Trainer that raises `TrainError` if the loss or a gradient is not finite, and logs its speed.

    `progress` is called after every step. The modules in `compiled` are compiled during training; if `dynamic`, for
    inputs of any length. `tokenizer` is saved with the model.
    """

    accelerator: Any
    args: Any
    state: Any
    model: Any
    _tr_loss: Tensor
    _globalstep_last_logged: int
    _resumes: str | None = None

    def __init__(
        self,
        *,
        progress: Progress | None = None,
        tokenizer: Any = None,
        compiled: Sequence[nn.Module] = (),
        dynamic: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        check_sharding(self)
        self.tokenizer = tokenizer
        self.compiled = compiled
        self.dynamic = dynamic
        self.pace = Pace(progress)
        self.remove_callback(PrinterCallback)
        self.add_callback(self.pace)
        self.add_callback(_Restored(self))
        minutes = getattr(self.args, "checkpoint_minutes", None)  # not in plain TrainingArguments
        if minutes is not None:
            self.add_callback(TimedCheckpoints(minutes))

    def figures(self) -> dict[str, float]:
        return summarize_log(self.state.log_history)

    def epochs(self) -> float:
        return float(self.state.epoch or 0.0)

    def examples(self) -> int:
        each = self.args.per_device_train_batch_size * self.args.gradient_accumulation_steps
        return int(self.state.global_step * each * self.args.world_size)

    def write(self, folder: Path) -> None:
        """Write the trained model and its tokenizer to `folder`; call this on every process."""
        weights = self.accelerator.get_state_dict(self.model)
        if self.is_world_process_zero():
            self.accelerator.unwrap_model(self.model).save_pretrained(folder, state_dict=weights)
            if self.tokenizer is not None:
                self.tokenizer.save_pretrained(folder)

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        """Write a checkpoint with the current tensor names.

        transformers (5.23, issue 48805) writes older names, but does not find them when it loads a checkpoint.
        """
        model: Any = self.accelerator.unwrap_model(self.model)
        if not isinstance(model, PreTrainedModel):
            super()._save(output_dir, state_dict)
            return
        saving: Any = vars(model)
        saving["save_pretrained"] = partial(model.save_pretrained, save_original_format=False)
        try:
            super()._save(output_dir, state_dict)
        finally:
            del saving["save_pretrained"]

    def _issue_warnings_after_load(self, load_result: Any) -> None:
        model = self.accelerator.unwrap_model(self.model)
        tensors = model.state_dict(keep_vars=True)
        lost = set(load_result.missing_keys) - set(getattr(model, "_keys_to_ignore_on_save", None) or ())
        restored = {id(tensor) for name, tensor in tensors.items() if name not in lost}  # tied weights are saved once
        lost -= {name for name in lost if id(tensors.get(name)) in restored}
        wrong = sorted(lost | set(load_result.unexpected_keys))
        if wrong:
            raise TrainError(
                f"a checkpoint in {self.args.output_dir} does not fit the model: {len(wrong)} weights differ, such as "
                f"{wrong[0]}. Pass --overwrite to discard it."
            )

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """Train with compiled modules, then finish the wandb run, so that the next training run starts a new one.

        The default device is set to the CPU, because the samplers and collators of transformers require it.
        """
        compiled = compiled_blocks(self.compiled, dynamic=self.dynamic) if self.compiled else nullcontext()
        with compiled, nullcontext() if torch.get_default_device().type == "cpu" else torch.device("cpu"):
            result = super().train(*args, **kwargs)
        wandb: Any = sys.modules.get("wandb")
        if "wandb" in (self.args.report_to or ()) and wandb is not None and wandb.run is not None:
            wandb.finish()
        return result

    def _run_epoch(self, *args: Any, **options: Any) -> None:
        if self.state.global_step >= self.state.max_steps:
            self.control.should_training_stop = True
            return
        super()._run_epoch(*args, **options)

    def training_step(self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None) -> Tensor:
        self.pace.count(inputs)
        loss: Tensor = super().training_step(model, inputs, num_items_in_batch)
        if not torch.isfinite(loss).all():
            raise self._refusal(f"the loss of step {self.state.global_step + 1} is {loss.item()}{self.where(1)}")
        return loss

    def where(self, passes: int) -> str:
        return ""

    def consequence(self) -> str:
        return (
            f"the weights were not changed, and the last checkpoint is in {self.args.output_dir}. Use a smaller "
            "learning rate, or float32 instead of half precision"
        )

    def _get_grad_norm(self, model: nn.Module, grad_norm: Any = None) -> Any:
        """Return the gradient norm before the optimizer step.

        Raises:
            TrainError: If the norm is not finite and the float16 loss scaler will not skip the step.
        """
        norm = super()._get_grad_norm(model, grad_norm)
        if norm is None:  # DeepSpeed steps by itself, before this check
            return norm
        size = float(norm.full_tensor() if hasattr(norm, "full_tensor") else norm)
        if not math.isfinite(size) and not self._skips():
            where = self.where(self.args.gradient_accumulation_steps)
            raise self._refusal(
                f"the loss of step {self.state.global_step + 1} is finite, but its gradient norm is {size}{where}"
            )
        return norm

    def _skips(self) -> bool:
        scaler = self.accelerator.scaler
        return scaler is not None and scaler.get_scale() > _MIN_SCALE

    def _refusal(self, what: str) -> TrainError:
        return TrainError(f"{what}; {self.consequence()}")

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        super().log({**logs, **self.pace.notes(self.args, self.state)}, start_time)

    def _prepare_for_training(self, max_steps: int, train_dataloader: Any, resume_from_checkpoint: Any) -> Any:
        self._resumes = resume_from_checkpoint
        return super()._prepare_for_training(max_steps, train_dataloader, resume_from_checkpoint)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if checkpoint is None or not self.is_fsdp_enabled:
            super()._load_optimizer_and_scheduler(checkpoint)
            return
        with only_with_moments(self.model, checkpoint):
            super()._load_optimizer_and_scheduler(checkpoint)

    def _save_rng_state(self, output_dir: str) -> None:
        super()._save_rng_state(output_dir)
        sums = self.accelerator.gather(self._tr_loss.detach().reshape(1)).tolist()
        if self.is_world_process_zero():
            noted = {"sums": sums, "step": self._globalstep_last_logged}
            write_whole(Path(output_dir) / RUNNING_LOSS, json.dumps(noted).encode())

    def restore_running_loss(self) -> None:
        """Restore the sum of losses since the last log entry, or its mean if the number of processes changed."""
        if self._resumes is None:
            return
        try:
            noted = read_json(Path(self._resumes) / RUNNING_LOSS)
            sums = [float(each) for each in noted["sums"]]
            step = int(noted["step"])
        except (UnreadableError, KeyError, TypeError, ValueError):
            return  # damaged: the next log covers the steps since the checkpoint
        own = sums[self.args.process_index] if len(sums) == self.args.world_size else sum(sums) / len(sums)
        self._tr_loss = torch.tensor(own, device=self._tr_loss.device)
        self._globalstep_last_logged = step


class _Restored(TrainerCallback):
    def __init__(self, trainer: MeasuredTrainer) -> None:
        self.trainer = trainer

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.trainer.restore_running_loss()


class TimedCheckpoints(TrainerCallback):
    """Save a checkpoint `minutes` after the last one.

    The first process decides, and tells the others after how many steps to check again, so that processes do not
    synchronize at every step. The additional checkpoints are not candidates for the best model.
    """

    def __init__(self, minutes: float) -> None:
        self.seconds = 60 * minutes
        self._saved = self._begun = 0.0
        self._first = self._look = 0

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._saved = self._begun = time.monotonic()
        self._first = state.global_step
        self._look = state.global_step + 1

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step < self._look:
            return
        now = time.monotonic()
        left = self.seconds - (now - self._saved)
        pace = (now - self._begun) / max(1, state.global_step - self._first)
        news = [left <= 0, self.steps_until(self.seconds if left <= 0 else left, pace)]
        if args.world_size > 1:
            news = broadcast_object_list(news)
        is_time, steps = bool(news[0]), int(news[1])
        self._look = state.global_step + steps
        if is_time:
            control.should_save = True

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._saved = time.monotonic()

    @staticmethod
    def steps_until(left: float, pace: float) -> int:
        """Return half the number of steps that fit in `left` seconds at `pace` seconds per step.

        >>> TimedCheckpoints.steps_until(60.0, 0.5), TimedCheckpoints.steps_until(0.1, 0.5)
        (60, 1)
        """
        return max(1, min(_MAX_STEPS_BETWEEN_CHECKS, int(left / (2 * pace)))) if pace > 0 else 1
