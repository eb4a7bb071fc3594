"""How many steps of a schedule cost what uniform training costs, and how often a text may be read."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, inf

from layerwise.errors import PlanError, TrainError
from layerwise.schedule import GrowthSchedule, ModelCost, flops_per_token, steps_for
from layerwise.train.phases.step_schedule import StepSchedule
from layerwise.train.recipe import GrowthVariant, Recipe, Settings, grown

_ROUNDS = 4
"""Corrections of a number of steps whose cost depends on draws; two are enough unless a phase is a few steps long."""


def steps_within(schedule: GrowthSchedule, cost: ModelCost, budget: int, seed: int, accumulation: int = 1) -> int:
    """As many steps of the schedule as cost what `budget` uniform steps cost, with the draws that `seed` will make.

    Where nothing is left to chance this is `layerwise.schedule.steps_for`. Else the mean over draws may be missed by
    more than a step, and the number is corrected by what the very draws of this training cost, in `accumulation`
    forward passes a step.
    """
    steps = steps_for(schedule, cost, budget)
    if all(phase.drop == (0.0, 0.0) and phase.sample is None for phase in schedule.phases):
        return steps
    costs: dict[int, float] = {}
    for _ in range(_ROUNDS):
        if steps not in costs:
            costs[steps] = cost_in_uniform_steps(schedule, cost, steps, seed, accumulation)
        steps = max(1, round(steps * budget / costs[steps]))
    return min(costs, key=lambda count: abs(costs[count] - budget))


def cost_in_uniform_steps(
    schedule: GrowthSchedule, cost: ModelCost, steps: int, seed: int, accumulation: int = 1
) -> float:
    """What a training costs with the draws of its seed, in steps in which everything learns."""
    table = StepSchedule(schedule, steps, seed)
    flops = sum(
        flops_per_token(table.resolve(step, number), cost) for step in range(steps) for number in range(accumulation)
    )
    return flops / (3 * cost.total * accumulation)


def recipe_of(
    arm: str, schedule: GrowthSchedule, settings: Settings, steps: int, cost: ModelCost, *, from_scratch: bool = False
) -> Recipe:
    """One training of an arm: what decides it but the data and the seed."""
    return replace(grown(settings, GrowthVariant(schedule, steps, cost), arm), from_scratch=from_scratch)


def check_epochs(steps: int, batch: int, windows: int, max_epochs: float, name: str) -> None:
    """Raise `TrainError` for a training, called `name`, that reads its text more often than `max_epochs` times.

    What is read often is memorized, and a schedule that memorizes sooner is not better.
    """
    if not 0 < max_epochs < inf:
        raise TrainError(f"a text may be read {max_epochs:g} times at most; write a number above 0")
    epochs = steps * batch / windows
    if epochs > max_epochs + 1e-9:
        fits = int(max_epochs * windows / batch)
        raise TrainError(
            f"{name} would read the text {epochs:.3g} times: {steps:,} steps of {batch} windows, and it has "
            f"{windows:,}. What is read more than {max_epochs:g} times is memorized; give more text, fewer steps (of "
            f"the longest training at most {fits:,}), or allow it with --max-epochs {ceil(10 * epochs) / 10:g}"
        )


def check_initial_weights(schedule: GrowthSchedule, pretrained: bool) -> None:
    """Raise `PlanError` where layers would grow in over weights that are trained already."""
    grows = [phase for phase in schedule.phases if phase.present is not None or phase.copies]
    if pretrained and grows:
        raise PlanError(
            f"in {schedule.name} layers grow in (phase {grows[0].name}), over weights of the checkpoint that are "
            "trained already; train it from random weights with --from-scratch, or take another schedule"
        )
