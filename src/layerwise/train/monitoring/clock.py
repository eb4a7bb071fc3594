"""The clock of a training: seconds over all its sessions, stored in the Trainer's own log and passed to callbacks."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

from transformers import TrainerCallback

from layerwise.results.training_record import LogEntry

Progress = Callable[[int, int, float | None], None]
"""Told the step, all steps, and the last training loss that was noted."""

_KINDS = {"loss": "train", "eval_loss": "validation"}


class Clock(TrainerCallback):
    """Adds the seconds of all sessions to the log, and passes them to the callback."""

    def __init__(self, progress: Progress | None) -> None:
        self.progress = progress
        self.loss: float | None = None
        self.begun = 0.0
        self.before = 0.0

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Read the seconds of earlier sessions."""
        self.begun = time.perf_counter()
        self.before = seconds_of(state.log_history)

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Note the seconds beside what was logged."""
        entry = state.log_history[-1]
        entry["seconds"] = self.before + time.perf_counter() - self.begun
        self.loss = entry.get("loss", self.loss)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Tell who watches."""
        if self.progress is not None:
            self.progress(state.global_step, state.max_steps, self.loss)


def seconds_of(history: Sequence[dict[str, Any]]) -> float:
    """The seconds of all sessions in a log."""
    return max((float(entry["seconds"]) for entry in history if "seconds" in entry), default=0.0)


def moments(history: Sequence[dict[str, Any]]) -> tuple[LogEntry, ...]:
    """The losses in a log, in its order."""
    return tuple(
        LogEntry(int(entry["step"]), kind, float(entry[key]))
        for entry in history
        for key, kind in _KINDS.items()
        if key in entry
    )


def gradient_norms(history: Sequence[dict[str, Any]]) -> dict[str, float]:
    """The norms of the gradients in a log, before they were cut: `gradient_norm`, their median, and the largest.

    Nothing where none was noted. The Trainer notes the norm of one step at each log, so the largest is a lower bound.

    >>> gradient_norms([{"grad_norm": 0.5}, {"grad_norm": 3.0}, {"grad_norm": 0.7}, {"loss": 2.0}])
    {'gradient_norm': 0.7, 'gradient_norm_most': 3.0}
    """
    norms = [float(entry["grad_norm"]) for entry in history if "grad_norm" in entry]
    return {"gradient_norm": median(norms), "gradient_norm_most": max(norms)} if norms else {}
