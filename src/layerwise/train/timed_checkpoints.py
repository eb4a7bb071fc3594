"""Checkpoints by the clock: one whenever so many minutes have passed since the last, wherever the training then is.

Steps of different lengths, and machines that may be taken away, make a number of steps a poor measure of what would be
lost. The clock is that of the first process, which tells the others; it also says after how many steps it will look
again, so that processes need not wait for each other at every step. Validations and their checkpoints stay where they
are: the best model is still chosen among those.
"""

from __future__ import annotations

import time
from typing import Any

from accelerate.utils import broadcast_object_list
from transformers import TrainerCallback

_RARELY = 1_000
"""The most steps between two looks at the clock."""


class TimedCheckpoints(TrainerCallback):
    """Asks for a checkpoint when `minutes` have passed since the last one, or since the training began."""

    def __init__(self, minutes: float) -> None:
        self.seconds = 60 * minutes
        self._saved = self._begun = 0.0
        self._first = self._look = 0

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Start the clock."""
        self._saved = self._begun = time.monotonic()
        self._first = state.global_step
        self._look = state.global_step + 1

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Ask for a checkpoint if it is time, on all processes or on none."""
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
        """Any checkpoint counts."""
        self._saved = time.monotonic()

    @staticmethod
    def steps_until(left: float, pace: float) -> int:
        """After how many steps of `pace` seconds to look again, with `left` seconds to go: half of those that fit.

        >>> TimedCheckpoints.steps_until(60.0, 0.5), TimedCheckpoints.steps_until(0.1, 0.5)
        (60, 1)
        """
        return max(1, min(_RARELY, int(left / (2 * pace)))) if pace > 0 else 1
