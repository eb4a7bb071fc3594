"""The clock of a training: seconds over all its sittings, noted in the Trainer's own log, and told to who watches."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from transformers import TrainerCallback

from layerwise.results.pedigree import Moment

Progress = Callable[[int, int, float | None], None]
"""Told the step, all steps, and the last training loss that was noted."""

_KINDS = {"loss": "train", "eval_loss": "validation"}


class Clock(TrainerCallback):
    """Counts the seconds of all sittings into the log, and tells who watches."""

    def __init__(self, progress: Progress | None) -> None:
        self.progress = progress
        self.loss: float | None = None
        self.begun = 0.0
        self.before = 0.0

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Take up the seconds of earlier sittings."""
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
    """The seconds of all sittings that a log tells of."""
    return max((float(entry["seconds"]) for entry in history if "seconds" in entry), default=0.0)


def moments(history: Sequence[dict[str, Any]]) -> tuple[Moment, ...]:
    """The losses in a log, in its order."""
    return tuple(
        Moment(int(entry["step"]), kind, float(entry[key]))
        for entry in history
        for key, kind in _KINDS.items()
        if key in entry
    )
