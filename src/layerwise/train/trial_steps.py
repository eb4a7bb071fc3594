"""What a training will take, by a few of its steps, a piece of its validation and one checkpoint.

The Trainer is the training's own, on a model of its own and in a folder that is removed; it is taken from step to step
(`TimedSteps`). Steps that are named are timed by `seconds_of_steps`. For `training_times` they are a sample from all
over the training, so that every phase of a schedule is among them; the first only warms up, so there is another where a
training has more. Nothing else of the process changes but the random generators, which the caller keeps.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, sqrt
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any

from torch import Tensor
from torch.utils.data import Subset
from transformers import TrainerCallback

QUIET: Mapping[str, Any] = {
    "eval_strategy": "no",
    "save_strategy": "no",
    "load_best_model_at_end": False,
    "report_to": "none",
    "push_to_hub": False,
}
"""The `TrainingArguments` that differ from those of the training: it neither validates, saves nor reports by itself."""

_GOLDEN = (sqrt(5) - 1) / 2
_SHARE = 0.1
"""Of the seconds of all steps, what may go into those of a trial."""

_IN_STEPS = 0.7
"""The share of the seconds that may go into steps."""

FEW = 8
"""Examples that are evaluated first; a batch follows where there is time."""

_MOST_WRITTEN, _PIECE = 2**30, 2**28
"""The bytes of the largest checkpoint that is written, and those that are written in place of a larger one."""


@dataclass(frozen=True, slots=True)
class TrainingTimes:
    """How often a training does what, the seconds of each, and the bytes of a checkpoint and of the finished model.

    `opening` are the seconds before its first step, `timed` the steps that were timed.
    """

    steps: int
    validations: int
    checkpoints: int
    opening: float
    step: float
    validation: float
    checkpoint: float
    checkpoint_bytes: int
    model_bytes: int
    timed: int

    def seconds(self, done: int = 0) -> float:
        """Those of what is left behind `done` steps; writing the finished model takes what a checkpoint does.

        >>> TrainingTimes(100, 4, 2, 1.0, 0.1, 0.5, 0.25, 0, 0, 3).seconds(50)
        7.5
        """
        left = (self.steps - done) / self.steps
        between = self.validations * self.validation + self.checkpoints * self.checkpoint
        return self.opening + left * (self.steps * self.step + between) + self.checkpoint


def spread(number: int, count: int) -> int:
    """The place from 0 up to `count` of the sample `number`: each beginning of the samples is spread over all places.

    >>> [spread(number, 100) for number in range(5)]
    [0, 61, 23, 85, 47]
    """
    return int(number * _GOLDEN % 1 * count)


def mean_over(steps: Sequence[int], values: Sequence[float]) -> float:
    """The mean over all steps of a value known at some `steps`: each of all counts as the nearest of these does.

    A schedule falls into phases whose steps are unlike, and a few steps are not shared out as the phases are long:
    each stands for the steps up to half the way to its neighbours, the outermost for as many on the outer side.

    >>> mean_over([10, 60, 90], [1.0, 2.0, 4.0])
    2.0833333333333335
    """
    known = sorted(zip(steps, values, strict=True))
    if len(known) == 1:
        return known[0][1]
    at = [step for step, _ in known]
    spans = [(later - earlier) / 2 for earlier, later in pairwise(at)]
    widths = [before + behind for before, behind in zip([spans[0], *spans], [*spans, spans[-1]], strict=True)]
    total = sum(widths)
    if not total:
        return mean(values)
    return sum(width * value for width, (_, value) in zip(widths, known, strict=True)) / total


MakeTrainer = Callable[[Path, Mapping[str, Any]], Any]
"""Gives the Trainer of a training into a folder, with further `TrainingArguments` that win over its own."""


def seconds_of_steps(make: MakeTrainer, steps: Iterable[int]) -> dict[int, float]:
    """The seconds of the first step of a training, which only warms up, and of these `steps` behind it, in their order.

    The training has more steps than are timed.
    """
    left = iter(steps)
    timed = TimedSteps(lambda _, steps: next(left, None))
    with TemporaryDirectory(prefix="layerwise-") as name:
        trainer = make(Path(name), QUIET)
        trainer.add_callback(timed)
        trainer.train()
        del trainer
    gc.collect()  # a Trainer and its model refer to each other
    return dict(zip(timed.visited, timed.taken, strict=True))


def training_times(make: MakeTrainer, seconds: float) -> TrainingTimes:
    """Time a training for at most so many seconds, or as long as two steps take."""
    begun = time.perf_counter()

    def following(timed: TimedSteps, steps: int) -> int | None:
        """The next step of a sample from all over the training, until the time is up."""
        count = len(timed.taken)
        until = min(begun + _IN_STEPS * seconds, timed.opened + _SHARE * timed.mean() * steps)
        if (count > 1 and timed.before > until) or count >= steps:
            return None
        return min(spread(count, steps), max(0, steps - 2))  # the Trainer ends at the last

    with TemporaryDirectory(prefix="layerwise-") as name:
        folder = Path(name)
        trainer = make(folder, QUIET)
        steps = TimedSteps(following)
        trainer.add_callback(steps)
        trainer.train()
        arguments = trainer.args
        validation = _validation(trainer, begun + seconds)
        checkpoint, checkpoint_bytes = _checkpoint(trainer, folder)
        model_bytes = sum(each.numel() * each.element_size() for each in trainer.model.parameters())
        times = TrainingTimes(
            steps=arguments.max_steps,
            validations=ceil(arguments.max_steps / max(1, arguments.eval_steps or 1)),
            checkpoints=ceil(arguments.max_steps / max(1, arguments.save_steps)),
            opening=steps.opened - begun,
            step=steps.mean(),
            validation=validation,
            checkpoint=checkpoint,
            checkpoint_bytes=checkpoint_bytes,
            model_bytes=model_bytes,
            timed=max(1, len(steps.taken) - 1),
        )
        del trainer, steps
    gc.collect()  # a Trainer and its model refer to each other
    return times


class TimedSteps(TrainerCallback):
    """Takes a Trainer from one step to the `following` one, until that is none, and keeps the seconds of each.

    `following` is called with this and with how many steps the training has.
    """

    def __init__(self, following: Callable[[TimedSteps, int], int | None]) -> None:
        self.following = following
        self.opened = 0.0
        self.before = 0.0
        self.visited: list[int] = []
        self.taken: list[float] = []

    def mean(self) -> float:
        """The seconds of a step in the mean over the training; the first step, which warms up, counts only alone."""
        if len(self.taken) == 1:
            return self.taken[0]
        return mean_over(self.visited[1:], self.taken[1:])

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The clock begins with the first step, when its batch is there."""
        if not self.taken:
            self.opened = self.before = time.perf_counter()
        self.visited.append(state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Take the time, and go to the step that follows."""
        now = time.perf_counter()
        self.taken.append(now - self.before)
        self.before = now
        step = self.following(self, state.max_steps)
        if step is None:
            control.should_training_stop = True
        else:
            state.global_step = step  # the Trainer has added one to the step that ended


def _validation(trainer: Any, end: float) -> float:
    """The seconds of a validation, by a few of its examples, and by a batch where there is time; 0 without any."""
    examples = trainer.eval_dataset
    if examples is None or len(examples) == 0:
        return 0.0

    def timed(few: int) -> float:
        chosen = Subset(examples, [number * len(examples) // few for number in range(few)])
        begun = time.perf_counter()
        trainer.evaluate(eval_dataset=chosen)
        return (time.perf_counter() - begun) / few

    few = min(len(examples), FEW)
    each = timed(few)
    batch = min(len(examples), int(trainer.args.eval_batch_size))
    if batch > few and time.perf_counter() + batch * each < end:
        each = timed(batch)
    return each * len(examples)


def _checkpoint(trainer: Any, folder: Path) -> tuple[float, int]:
    """The seconds and the bytes of a checkpoint: one is written, or of a large one so much that its pace shows."""
    tensors = [*trainer.model.parameters(), *_tensors(trainer.optimizer.state)]
    size = sum(each.numel() * each.element_size() for each in tensors)
    begun = time.perf_counter()
    if size > _MOST_WRITTEN:
        (folder / "piece").write_bytes(bytes(_PIECE))
        return (time.perf_counter() - begun) * size / _PIECE, size
    trainer._save_checkpoint(trainer.model, trial=None)
    seconds = time.perf_counter() - begun
    return seconds, sum(path.stat().st_size for path in folder.rglob("checkpoint-*/**/*") if path.is_file())


def _tensors(values: Any) -> Iterator[Tensor]:
    """The tensors in the state of an optimizer, however deep."""
    if isinstance(values, Tensor):
        yield values
    elif isinstance(values, Mapping):
        for value in values.values():
            yield from _tensors(value)
