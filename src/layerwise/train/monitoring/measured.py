"""A Trainer that notes its pace, writes checkpoints by the clock, and resumes the mean of its losses.

What is noted goes into the Trainer's own log before trackers read it: seconds a step, the share of them that the step
waited for its batch, examples and tokens a second, memory, and the share of the device's operations that were of use
(`layerwise.train.monitoring.pace`). A checkpoint may lie between two notes of the loss; what was summed since the last
one is kept with it, so that the log of a resumed training is that of one that was never stopped.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import TrainerCallback

from layerwise.bounded import Unreadable, read_json
from layerwise.results.run import write_whole
from layerwise.train.finite import FiniteTrainer
from layerwise.train.monitoring.pace import Pace
from layerwise.train.monitoring.tracking import EndOfTracking
from layerwise.train.sharding import only_with_moments
from layerwise.train.timed_checkpoints import TimedCheckpoints

RUNNING_LOSS = "running_loss.json"
"""The file of a checkpoint with the losses since the last note: the sum of each process, and the step of the note."""


class MeasuredTrainer(FiniteTrainer):
    """A `FiniteTrainer` that notes its pace, and whose checkpoints lie where the clock or the steps say."""

    args: Any
    state: Any
    model: Any
    _tr_loss: Tensor
    _globalstep_last_logged: int
    _resumes: str | None = None

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.pace = Pace()
        self.add_callback(self.pace)
        minutes = getattr(self.args, "checkpoint_minutes", None)  # a plain TrainingArguments has none
        if minutes is not None:
            self.add_callback(TimedCheckpoints(minutes))
        self.add_callback(EndOfTracking())
        self.add_callback(_Restored(self))

    def training_step(self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None) -> Tensor:
        """One pass forward and backward; its tokens are counted."""
        self.pace.count(inputs)
        return super().training_step(model, inputs, num_items_in_batch)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """The parent's log, with the pace of the steps since the last one."""
        super().log({**logs, **self.pace.notes(self.args, self.state)}, start_time)

    def _prepare_for_training(self, max_steps: int, train_dataloader: Any, resume_from_checkpoint: Any) -> Any:
        self._resumes = resume_from_checkpoint
        return super()._prepare_for_training(max_steps, train_dataloader, resume_from_checkpoint)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        """The parent's, also where not every weight has learned."""
        if checkpoint is None or not self.is_fsdp_enabled:
            super()._load_optimizer_and_scheduler(checkpoint)
            return
        with only_with_moments(self.model, checkpoint):
            super()._load_optimizer_and_scheduler(checkpoint)

    def _save_rng_state(self, output_dir: str) -> None:
        """The parent's; the losses since the last note beside it."""
        super()._save_rng_state(output_dir)
        sums = self.accelerator.gather(self._tr_loss.detach().reshape(1)).tolist()
        if self.is_world_process_zero():
            noted = {"sums": sums, "step": self._globalstep_last_logged}
            write_whole(Path(output_dir) / RUNNING_LOSS, json.dumps(noted).encode())

    def restore_running_loss(self) -> None:
        """Go on with the losses since the last note that the checkpoint has; among other processes, with their mean."""
        if self._resumes is None:
            return
        try:
            noted = read_json(Path(self._resumes) / RUNNING_LOSS)
            sums = [float(each) for each in noted["sums"]]
            step = int(noted["step"])
        except (Unreadable, KeyError, TypeError, ValueError):
            return  # of another version: the next note is then about the steps since the checkpoint
        own = sums[self.args.process_index] if len(sums) == self.args.world_size else sum(sums) / len(sums)
        self._tr_loss = torch.tensor(own, device=self._tr_loss.device)
        self._globalstep_last_logged = step


class _Restored(TrainerCallback):
    """Restores the running loss once the parent has set its own to nothing."""

    def __init__(self, trainer: MeasuredTrainer) -> None:
        self.trainer = trainer

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.trainer.restore_running_loss()
