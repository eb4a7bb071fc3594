"""How long a step of each phase takes, against a step in which everything learns: timed before a training begins.

To train a schedule for as many seconds as uniform takes, its steps must be timed first. The phases and uniform are
timed in turns, round by round, in an order drawn anew, on a model of their own that is then thrown away; what counts is
the ratio within a round, since machines slow down and speed up between rounds (see `layerwise.measure.cost.overhead`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from random import Random
from statistics import median
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from layerwise.data.splits import Splits
from layerwise.errors import TrainError
from layerwise.plan.schedule import GrowthSchedule, ModelCost, preset
from layerwise.stack import Stack
from layerwise.train.phases.runner import GrowthRunner, growth_runner
from layerwise.train.recipe import GrowthVariant, Settings
from layerwise.train.training import Base

ROUNDS = 9
"""Rounds that count, after one that only warms up."""

_UNIFORM = "uniform"


def relative_step_times(
    base: Base, splits: Splits, schedule: GrowthSchedule, steps: int, cost: ModelCost, settings: Settings
) -> tuple[float, ...]:
    """Seconds of a step of every phase, as shares of those of a uniform step, on the machine that is to train.

    Raises `TrainError` for a schedule that keeps states on disk: their first reading and the later ones take unlike
    times, and a few steps show neither.
    """
    if any(phase.cached for phase in schedule.phases):
        raise TrainError(
            f"{schedule.name} keeps states on disk, so a few steps do not show what its steps take; give --match "
            "flops or --match tokens"
        )
    training = _TimedTraining(base.open(), splits, settings)
    plain = training.prepared(preset(_UNIFORM, schedule.depth), steps, cost)
    phased = training.prepared(schedule, steps, cost)
    middles = [(first + end - 1) // 2 for first, end in phased.step_schedule.bounds]
    sections: list[tuple[GrowthRunner, int]] = [(plain, 0), *((phased, middle) for middle in middles)]
    taken: list[list[float]] = [[] for _ in sections]
    order, chance = list(range(len(sections))), Random(0)
    for number in range(ROUNDS + 1):
        chance.shuffle(order)
        for index in order:
            taken[index].append(training.seconds(*sections[index], number))
    against = taken[0][1:]
    return tuple(median(one / other for one, other in zip(own[1:], against, strict=True)) for own in taken[1:])


def steps_that_take(schedule: GrowthSchedule, relative_times: tuple[float, ...], budget: int) -> int:
    """As many steps of the schedule as take the time of `budget` uniform ones.

    >>> from layerwise.plan.schedule import Phase
    >>> halves = GrowthSchedule("halves", 2, (Phase("a", 0.5, (1,)), Phase("b", 0.5, (0, 1))))
    >>> steps_that_take(halves, (0.5, 1.0), budget=60)
    80
    """
    mean = sum(phase.share * slow for phase, slow in zip(schedule.phases, relative_times, strict=True))
    return max(1, round(budget / mean))


class _TimedTraining:
    """One model and one batch, on which phases are timed."""

    def __init__(self, stack: Stack, splits: Splits, settings: Settings) -> None:
        self.stack = stack
        self.splits = splits
        self.passes = settings.gradient_accumulation_steps
        size = settings.batch_size // settings.gradient_accumulation_steps
        batch = splits.collate([splits.train[number % len(splits.train)] for number in range(size)])
        self.batch: Mapping[str, Tensor] = {name: value.to(stack.device) for name, value in batch.items()}
        self.optimizer = torch.optim.AdamW(stack.model.parameters(), lr=0.0)

    def prepared(self, schedule: GrowthSchedule, steps: int, cost: ModelCost) -> GrowthRunner:
        """What carries the schedule out."""
        training: dict[str, Any] = {"seed": 0}
        return growth_runner(self.stack, GrowthVariant(schedule, steps, cost), self.splits, training, Path())

    def seconds(self, grows: GrowthRunner, step: int, number: int) -> float:
        """Of one step, with the draws of its `number`."""
        grows.phase = None  # the other schedule had the model since
        grows.on_step_begin(None, SimpleNamespace(global_step=step), None, optimizer=self.optimizer)
        model: Any = self.stack.model.train()
        begun = time.perf_counter()
        for pass_index in range(self.passes):
            with self.stack.under(grows.at(step, number * self.passes + pass_index), single_pass=True):
                loss = model(**self.batch).loss
                loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        loss.item()  # an accelerator may still be at work
        return time.perf_counter() - begun
