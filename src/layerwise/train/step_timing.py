"""The seconds of some steps of a training.

The Trainer is the training's own, on a model of its own and in a folder that is removed; it is taken from step to step.
Nothing else of the process changes but the random generators.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from transformers import TrainerCallback

QUIET: Mapping[str, Any] = {
    "eval_strategy": "no",
    "save_strategy": "no",
    "load_best_model_at_end": False,
    "report_to": "none",
    "push_to_hub": False,
}
"""The `TrainingArguments` that differ from those of the training: it neither validates, saves nor reports by itself."""

MakeTrainer = Callable[[Path, Mapping[str, Any]], Any]
"""Gives the Trainer of a training into a folder, with further `TrainingArguments` that win over its own."""


def seconds_of_steps(make: MakeTrainer, steps: Iterable[int]) -> dict[int, float]:
    """Return the seconds of a training's first step, a warm-up, and of the next `steps`; the training has more."""
    timed = TimedSteps(iter(steps))
    with TemporaryDirectory(prefix="layerwise-") as name:
        trainer = make(Path(name), QUIET)
        trainer.add_callback(timed)
        trainer.train()
        del trainer
    gc.collect()  # a Trainer and its model refer to each other
    return dict(zip(timed.visited, timed.taken, strict=True))


def seconds_of_step(make: MakeTrainer) -> float:
    return list(seconds_of_steps(make, [1]).values())[-1]


class TimedSteps(TrainerCallback):
    """Takes a Trainer from its first step to each of those that `following` gives, and keeps the seconds of each."""

    def __init__(self, following: Iterator[int]) -> None:
        self.following = following
        self.before = 0.0
        self.visited: list[int] = []
        self.taken: list[float] = []

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if not self.taken:
            self.before = time.perf_counter()
        self.visited.append(state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        now = time.perf_counter()
        self.taken.append(now - self.before)
        self.before = now
        step = next(self.following, None)
        if step is None:
            control.should_training_stop = True
        else:
            state.global_step = step  # the Trainer has added one to the step that ended
