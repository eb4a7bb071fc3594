"""The pace of a training: how long a step takes, and how much memory at most; noted in the Trainer's own log.

A step is timed from the end of the one before, or of the validation and saving between them, reading of data included;
the median is kept, which does not mind a few that were disturbed. Memory is that of the accelerator where there is one,
else the highest resident memory of the process (on Linux since the training began, elsewhere since the process did).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch
from transformers import TrainerCallback

_KIB = 1024


class Pace(TrainerCallback):
    """Notes the median seconds of the steps since the last note, and the peak of memory in bytes."""

    def __init__(self) -> None:
        self.before: float | None = None
        self.taken: list[float] = []

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Begin to measure."""
        _forget_peak()

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

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Note what was measured beside what was logged."""
        entry = state.log_history[-1]
        entry["peak_bytes"] = float(peak_bytes())
        if self.taken:
            entry["step_seconds"] = median(self.taken)
            self.taken.clear()


def seconds_a_step(history: Sequence[dict[str, Any]], first: int, end: int) -> float | None:
    """The median of what was noted of the steps from `first` up to `end`; `None` where none was noted."""
    noted = [entry for entry in history if "step_seconds" in entry and first < int(entry["step"]) <= end]
    return median(float(entry["step_seconds"]) for entry in noted) if noted else None


def figures_of(history: Sequence[dict[str, Any]]) -> dict[str, float]:
    """`step_seconds` (median) and `peak_bytes` (highest) over the whole of a log, where it has them."""
    steps = [float(entry["step_seconds"]) for entry in history if "step_seconds" in entry]
    peaks = [float(entry["peak_bytes"]) for entry in history if "peak_bytes" in entry]
    return {**({"step_seconds": median(steps)} if steps else {}), **({"peak_bytes": max(peaks)} if peaks else {})}


def peak_bytes() -> int:
    """The most memory that was held at once, in bytes."""
    if torch.cuda.is_available():
        return int(torch.cuda.max_memory_allocated())
    status = Path("/proc/self/status")
    if status.is_file():
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
        return int(lines["VmHWM"].split()[0]) * _KIB
    if sys.platform == "win32":
        return 0
    import resource

    highest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(highest) * (1 if sys.platform == "darwin" else _KIB)


def _forget_peak() -> None:
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
        return
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return  # the peak then counts from the start of the process
