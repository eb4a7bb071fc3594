"""Callbacks for training the demo model.

`Progress` stores the log and the completed fraction of the training run, which determines the learning rate. The
fraction counts steps, or minutes on a slow machine, so that the rate always reaches zero at the end. `Grader` adds
small held-out evaluations to the log.
"""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerFast, TrainerCallback

from layerwise.data.demo import python_stdlib, skills
from tools.demo.grading import exact_matches, text_grade


class Progress(TrainerCallback):
    """The log of the training run, and its completed fraction.

    The fraction is the larger of steps over `steps` and minutes over `minutes`. It determines the learning rate, and
    when it reaches 1, a checkpoint is saved and training ends. Each line of `log` is a JSON object with the step and
    the seconds of training so far, from which a resumed run computes the remaining time.
    """

    def __init__(self, log: Path, steps: int, warmup_steps: int, minutes: float | None = None) -> None:
        self.log = log
        self.steps = steps
        self.warmup_steps = warmup_steps
        self.seconds_granted = math.inf if minutes is None else 60 * minutes
        self.seconds_before = 0.0
        self.started = time.monotonic()

    def resume(self, step: int) -> None:
        """Remove the lines of the log after `step`, and continue counting from its seconds."""
        kept = [line for line in self.lines() if line["step"] <= step]
        self.log.write_text("".join(json.dumps(line) + "\n" for line in kept))
        self.seconds_before = max((line["seconds"] for line in kept), default=0.0)

    def lines(self) -> list[dict[str, float]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    @property
    def seconds(self) -> float:
        """Seconds of training, including those before an interruption."""
        return self.seconds_before + time.monotonic() - self.started

    def share(self, step: int) -> float:
        return min(1.0, max(step / self.steps, self.seconds / self.seconds_granted))

    def rate(self, step: int) -> float:
        """Return the learning rate at `step` relative to its peak: linear warmup, then a cosine to zero."""
        warm = min(1.0, (step + 1) / self.warmup_steps)
        return warm * 0.5 * (1.0 + math.cos(math.pi * self.share(step)))

    def write(self, step: int, **measured: float) -> None:
        line = {"step": step, "seconds": round(self.seconds, 1), **measured}
        with self.log.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        if self.share(state.global_step) >= 1.0:
            control.should_training_stop = control.should_save = True

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float], **others: Any) -> None:
        if "loss" in logs:
            loss, rate = float(logs["loss"]), float(logs["learning_rate"])
            self.write(state.global_step, loss=round(loss, 4), learning_rate=round(rate, 7))


class Grader(TrainerCallback):
    """Evaluates exact match on `examples` held-out examples of each skill, and loss on prose, every `every` steps."""

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerFast,
        progress: Progress,
        every: int,
        examples: int,
        window: int,
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.progress = progress
        self.every = every
        self.window = window
        self.documents = python_stdlib.read_documents("heldout", "prose")
        self.samples = {task: skills.draw_examples(task, "heldout", examples) for task in skills.TASKS}

    def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        if state.global_step % self.every:
            return
        measured = {}
        for task, sample in self.samples.items():
            matches = exact_matches(self.model, self.tokenizer, sample)
            measured[task] = round(sum(matches) / len(matches), 4)
        text = text_grade(self.model, self.tokenizer, self.documents, self.window, most_windows=1)
        self.progress.write(state.global_step, prose_nats=round(text.nats, 4), **measured)
        self.model.train()
