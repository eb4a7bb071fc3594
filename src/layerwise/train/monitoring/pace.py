"""The pace of a training: how long a step takes, what it reads, and how much memory at most; noted in the log.

    step_seconds           the median time of a step
    data_wait              the share of that time in which steps waited for their batch
    examples_per_second    of all processes together
    tokens_per_second      of those that are no padding, where texts are read
    mfu                    model FLOPs utilisation: operations / (seconds x peak x devices), where the peak is known
    peak_bytes             the most memory of this process

A step is timed from the end of the one before, or of the validation and saving between them, reading of data included;
the median is kept, which does not mind a few that were disturbed. The operations of a step are those that the Trainer
counts: 6 for each parameter that is read and each token. Memory is that of the accelerator where there is one, else the
highest resident memory of the process (on Linux since the training began, elsewhere since the process did).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from torch import Tensor
from transformers import TrainerCallback

from layerwise.measure.cost.memory import forget_peak, peak_bytes
from layerwise.train.monitoring.peak_flops import peak_in_training

MEDIANS = ("step_seconds", "data_wait", "examples_per_second", "tokens_per_second", "mfu")
"""What is noted of steps, by name."""


class Pace(TrainerCallback):
    """Measures the steps since the last note."""

    def __init__(self) -> None:
        self.before: float | None = None
        self.taken: list[float] = []
        self.waited = 0.0
        self._tokens: Tensor | int = 0
        self._flops = 0.0
        self._step = 0

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Begin to measure."""
        self._flops, self._step = float(state.total_flos), state.global_step
        forget_peak()

    def count(self, inputs: Mapping[str, Any]) -> None:
        """Count the tokens of a pass; they are summed where they are, so that nothing waits for an accelerator."""
        if "input_ids" in inputs:
            mask = inputs.get("attention_mask")
            self._tokens = self._tokens + (inputs["input_ids"].numel() if mask is None else mask.sum())

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The batch is there."""
        if self.before is not None:
            self.waited += time.perf_counter() - self.before

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Take the time."""
        now = time.perf_counter()
        if self.before is not None:
            self.taken.append(now - self.before)
        self.before = now

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """A validation is no part of the step that follows it."""
        self.before = time.perf_counter()

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Nor is the writing of a checkpoint."""
        self.before = time.perf_counter()

    def notes(self, args: Any, state: Any) -> dict[str, float]:
        """What was measured since the last note; memory alone where no step was."""
        noted = {"peak_bytes": float(peak_bytes())}
        steps = state.global_step - self._step
        if not self.taken or not steps:
            return noted
        seconds = sum(self.taken) / len(self.taken)
        examples = args.per_device_train_batch_size * args.gradient_accumulation_steps * args.world_size
        noted["step_seconds"] = median(self.taken)
        noted["data_wait"] = self.waited / sum(self.taken)
        noted["examples_per_second"] = examples / seconds
        tokens = float(self._tokens)
        if tokens:
            noted["tokens_per_second"] = tokens * args.world_size / steps / seconds
        peak, flops = peak_in_training(args), float(state.total_flos) - self._flops
        if peak is not None and flops > 0:
            noted["mfu"] = flops / steps / (seconds * peak * args.world_size)
        self.taken.clear()
        self.waited, self._tokens = 0.0, 0
        self._flops, self._step = float(state.total_flos), state.global_step
        return noted


def seconds_a_step(history: Sequence[dict[str, Any]], first: int, end: int) -> float | None:
    """The median of what was noted of the steps from `first` up to `end`; `None` where none was noted."""
    noted = [entry for entry in history if "step_seconds" in entry and first < int(entry["step"]) <= end]
    return median(float(entry["step_seconds"]) for entry in noted) if noted else None


def figures_of(history: Sequence[dict[str, Any]]) -> dict[str, float]:
    """The median of what a log has noted of steps, by name, and the highest `peak_bytes`, where it has them."""
    figures = {}
    for name in MEDIANS:
        noted = [float(entry[name]) for entry in history if name in entry]
        if noted:
            figures[name] = median(noted)
    peaks = [float(entry["peak_bytes"]) for entry in history if "peak_bytes" in entry]
    return {**figures, **({"peak_bytes": max(peaks)} if peaks else {})}
