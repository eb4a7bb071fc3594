"""An arm: one way to train the model of a task, and the steps that its budget buys with every seed.

RUN/ARM/seed-N/model     a finished training, with its record, which holds the schedule
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import ceil, inf
from pathlib import Path

from layerwise.errors import PlanError, RunError, TrainError
from layerwise.experiments.engines.trainings import RecipeTraining
from layerwise.experiments.growth.config import UNIFORM
from layerwise.experiments.growth.task import GrowthTask
from layerwise.results.checked import read
from layerwise.results.training_record import FILE, MODEL
from layerwise.schedule import GrowthSchedule, ModelCost, flops_per_token, steps_for
from layerwise.train.checkpoint_dir import CONFIG, existing_run
from layerwise.train.phases.runner import growth_runner
from layerwise.train.phases.step_schedule import StepSchedule
from layerwise.train.recipe import GrowthVariant, Recipe, Settings, grown
from layerwise.train.training import STATES, training_config

_ROUNDS = 4
"""Corrections of a number of steps whose cost depends on draws; two are enough unless a phase is a few steps long."""


@dataclass(frozen=True, slots=True)
class GrowthArm:
    """A way to train the model of a task: a schedule, settings, and for each seed the steps that its budget buys."""

    name: str
    schedule: GrowthSchedule
    settings: Settings
    steps: Mapping[int, int]

    @classmethod
    def at_equal_cost(
        cls, name: str, schedule: GrowthSchedule, settings: Settings, task: GrowthTask, budget: int,
        seeds: Iterable[int],
    ) -> GrowthArm:  # fmt: skip
        """An arm that spends the operations of `budget` uniform steps, with every seed."""
        passes = settings.gradient_accumulation_steps
        steps = {seed: steps_within(schedule, task.cost, budget, seed, passes) for seed in seeds}
        return cls(name, schedule, settings, steps)

    def recipe(self, task: GrowthTask, seed: int) -> Recipe:
        """What is trained with `seed`."""
        steps = self.steps[seed]
        settings = replace(self.settings, epochs=steps * self.settings.batch_size / task.windows)
        recipe = grown(settings, GrowthVariant(self.schedule, steps, task.cost), self.name)
        return replace(recipe, from_scratch=task.reinitialized)

    def training(self, task: GrowthTask, seed: int, beside: str = "") -> RecipeTraining:
        """The training with `seed`, in the folder of the run or in the one called `beside` in it."""
        training = RecipeTraining.of(self.recipe(task, seed), seed)
        if not beside:
            return training
        return replace(training, folder=f"{beside}/{training.folder}", label=f"{beside} {training.label}")


def folder_name(name: str) -> str:
    """The name of a schedule as that of an arm, which is a folder's too.

    >>> folder_name("my schedule / 2")
    'my-schedule-2'
    """
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "schedule"


def at_length(length: float, arm: str = UNIFORM) -> str:
    """What an arm is called where it is trained for a share of uniform's budget.

    >>> at_length(1.25), at_length(416 / 656, "published")
    ('uniform@1.25', 'published@0.634')
    """
    return f"{arm}@{length:.3g}"


def length_of(name: str) -> tuple[str, float | None]:
    """The arm whose trainings a folder of that name holds, and the share of the budget where they have another.

    >>> length_of("published@0.634"), length_of("published")
    (('published', 0.634), ('published', None))
    """
    arm, _, share = name.partition("@")
    return arm, float(share) if share else None


def steps_within(schedule: GrowthSchedule, cost: ModelCost, budget: int, seed: int, passes: int = 1) -> int:
    """As many steps of the schedule as cost what `budget` uniform steps cost, with the draws that `seed` will make.

    Where nothing is left to chance this is `layerwise.schedule.steps_for`. Else the mean over draws may be missed by
    more than a step, and the number is corrected by what the very draws of this training cost, in so many forward
    `passes` a step.
    """
    steps = steps_for(schedule, cost, budget)
    if all(phase.drop == (0.0, 0.0) and phase.sample is None for phase in schedule.phases):
        return steps
    costs: dict[int, float] = {}
    for _ in range(_ROUNDS):
        if steps not in costs:
            costs[steps] = cost_in_uniform_steps(schedule, cost, steps, seed, passes)
        steps = max(1, round(steps * budget / costs[steps]))
    return min(costs, key=lambda count: abs(costs[count] - budget))


def cost_in_uniform_steps(schedule: GrowthSchedule, cost: ModelCost, steps: int, seed: int, passes: int = 1) -> float:
    """What a training costs with the draws of its seed, in steps in which everything learns."""
    table = StepSchedule(schedule, steps, seed)
    flops = sum(flops_per_token(table.resolve(step, number), cost) for step in range(steps) for number in range(passes))
    return flops / (3 * cost.total * passes)


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


def check_arms(task: GrowthTask, arms: Iterable[GrowthArm], max_epochs: float, folder: Path | None) -> None:
    """Raise what any of the trainings would raise for its model, its text or the disk, before there is a run folder.

    `folder` is that of the run, whose trainings must be these; `None` where the folder does not matter.
    """
    for arm in arms:
        name = arm.name if arm.name == UNIFORM else f"{arm.name}, for the cost of {UNIFORM},"
        check_epochs(max(arm.steps.values()), arm.settings.batch_size, task.windows, max_epochs, name)
        for seed in sorted(arm.steps):
            training = arm.training(task, seed)
            wanted = training_config(task.base, task.splits, training.recipe, seed)
            path = (folder or Path()) / training.folder
            finished = None if folder is None else existing_run(path, wanted)
            if seed == min(arm.steps) and finished is None:
                assert training.recipe.growth is not None, "an arm has a schedule"
                growth_runner(task.stack, training.recipe.growth, task.splits, wanted, path / STATES)


def recorded_steps(folder: Path) -> int | None:
    """The steps of the trainings that are finished or begun in the folder of an arm; `None` where there are none."""
    for path in sorted((*folder.glob(f"seed-*/{MODEL}/{FILE}"), *folder.glob(f"seed-*/{CONFIG}"))):
        try:
            return int(read(path)["recipe"]["options"]["steps"])
        except (KeyError, TypeError, ValueError) as error:
            raise RunError(
                f"{path} does not say how many steps are trained there; choose another run folder, or --overwrite"
            ) from error
    return None
