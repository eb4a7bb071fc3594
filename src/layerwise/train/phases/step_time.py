"""How long a step of each phase takes, against a step in which everything learns: timed before a training begins.

To train a schedule for as many seconds as uniform takes, its steps must be timed first. The phases and uniform are
timed in turns by the Trainer that is to train, on a model of its own that is then thrown away; what counts is the ratio
within a round, since machines slow down and speed up between rounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from layerwise.data.splits import Splits
from layerwise.plan.schedule import GrowthSchedule, ModelCost, preset
from layerwise.train.recipe import GrowthVariant, Settings, grown
from layerwise.train.step_timing import seconds_of_steps
from layerwise.train.training import Base, trainer_of

ROUNDS = 9
"""Rounds that count, after one that only warms up."""


def relative_step_times(
    base: Base,
    splits: Splits,
    schedule: GrowthSchedule,
    cost: ModelCost,
    settings: Settings,
    arguments: Mapping[str, Any],
) -> tuple[float, ...]:
    """Return the seconds of a step of every phase relative to a uniform step, timed on this machine.

    `arguments` are further `TrainingArguments` of the training.
    """
    # A schedule of its own: each phase has a step for every round behind its first one, at which it would begin.
    phases = (*schedule.phases, preset("uniform", schedule.depth).phases[0])
    timed = tuple(replace(phase, name=str(number), share=1 / len(phases)) for number, phase in enumerate(phases))
    each = ROUNDS + 3
    growth = GrowthVariant(replace(schedule, phases=timed), each * len(phases), cost)
    recipe = grown(replace(settings, learning_rate=1e-12), growth)  # steps out of their order should move nothing

    def make(folder: Path, quiet: Mapping[str, Any]) -> Any:
        return trainer_of(base, splits, recipe, 0, folder, arguments={**arguments, **quiet})

    rounds = [[number * each + turn for number in range(len(phases))] for turn in range(1, ROUNDS + 2)]
    turns = [step for turn, steps in enumerate(rounds) for step in Random(turn).sample(steps, len(steps))]
    taken = seconds_of_steps(make, turns)
    return tuple(median(taken[steps[n]] / taken[steps[-1]] for steps in rounds[1:]) for n in range(len(phases) - 1))


def steps_that_take(schedule: GrowthSchedule, relative_times: tuple[float, ...], budget: int) -> int:
    """As many steps of the schedule as take the time of `budget` uniform ones.

    >>> from layerwise.plan.schedule import Phase
    >>> halves = GrowthSchedule("halves", 2, (Phase("a", 0.5, (1,)), Phase("b", 0.5, (0, 1))))
    >>> steps_that_take(halves, (0.5, 1.0), budget=60)
    80
    """
    mean = sum(phase.share * slow for phase, slow in zip(schedule.phases, relative_times, strict=True))
    return max(1, round(budget / mean))
