"""The steps of a training in phases: a schedule and, beside it, uniform training, each with every seed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from layerwise.errors import TrainError
from layerwise.experiments.cluster.pieces import Telling
from layerwise.experiments.engines.call import ExpectedWork
from layerwise.experiments.engines.steps import Completed, Outline, Steps
from layerwise.experiments.engines.trainings import TrainingsUnit
from layerwise.experiments.experiment import Inputs
from layerwise.experiments.growth.arms import (
    GrowthArm,
    check_arms,
    check_epochs,
    check_initial_weights,
    folder_name,
    recorded_steps,
)
from layerwise.experiments.growth.config import UNIFORM, GrowthTraining
from layerwise.experiments.growth.rows import finished_arms, headline_rows, training_scores
from layerwise.experiments.growth.task import GrowthTask, open_task
from layerwise.experiments.reporter import Reporter
from layerwise.experiments.training_runs import discard_trainings
from layerwise.measure.cost.frontier import equal_rows
from layerwise.results.training_record import MODEL
from layerwise.schedule import GrowthSchedule, chart, explain, preset
from layerwise.schedule.cost import flops_per_token, phase_shares, share_of_uniform
from layerwise.schedule.exposure import layer_epochs
from layerwise.train.phases.step_time import relative_step_times, steps_that_take
from layerwise.train.processes import is_alone

_WIDTH = 60
"""Columns of the chart of a schedule."""


def growth(config: GrowthTraining, reporter: Reporter, inputs: Inputs) -> Steps:
    """Train every arm with a seed before the next seed, and compare every arm with uniform at equal cost.

    Without steps and epochs uniform training reads the text once. Raises `PlanError` for a schedule of another depth
    and for layers that would grow in over trained ones, `TrainError` for a text that would be read too often, and what
    `open_task` raises.
    """
    task = open_task(config, reporter, inputs)
    source = config.source()
    name, schedule = folder_name(source.name), source.schedule(task.stack.depth)
    check_initial_weights(schedule, task.pretrained)
    budget = config.steps or task.steps_of(1.0 if config.epochs is None else config.epochs)
    check_epochs(budget, task.settings.batch_size, task.windows, config.max_epochs, UNIFORM)
    arms = _Arms(config, task, name, schedule, budget)
    if config.overwrite:
        check_arms(task, arms.of(None), config.max_epochs, None)

    def unit(folder: Path | None) -> TrainingsUnit:
        return task.unit([arm.training(task, seed) for seed in range(config.seeds) for arm in arms.of(folder)])

    session = yield Outline(
        task.manifest(config.seed), lambda: _says(config, task, schedule, budget, arms.of(None)),
        recipe=task.shared_recipe(budget=budget, match=config.match),
        ahead=(
            ExpectedWork(lambda folder: task.held_out_works(len(unit(folder).due(folder)))),
            ExpectedWork(lambda folder: unit(folder).works(folder, None)),
        ),
        refuse=lambda folder: check_arms(task, arms.of(folder), config.max_epochs, folder), discard=discard_trainings,
        pieces=lambda piece, emit: task.unit().carry_out_piece(piece, Telling(emit)),
        models=lambda folder: {each.label: folder / each.folder / MODEL for each in unit(folder).trainings},
    )  # fmt: skip
    yield from unit(session.folder)
    finished = finished_arms(session.folder)
    rows, ends = yield from training_scores(task, session.folder, finished)
    if UNIFORM in ends:
        others = {arm: of for arm, of in ends.items() if arm != UNIFORM}
        rows += [*equal_rows(others, ends[UNIFORM], UNIFORM), *headline_rows(finished, ends, task.cost)]
    return Completed(rows)


class _Arms:
    """The trainings, uniform first, unless it is not wanted; how many steps take equal seconds is timed once."""

    def __init__(
        self, config: GrowthTraining, task: GrowthTask, name: str, schedule: GrowthSchedule, budget: int
    ) -> None:
        self.config = config
        self.task = task
        self.name = name
        self.schedule = schedule
        self.budget = budget
        self._arms: tuple[GrowthArm, ...] = ()

    def of(self, folder: Path | None) -> tuple[GrowthArm, ...]:
        """The arms; where trainings have begun in `folder`, with as many steps as those have, which must be resumed."""
        if not self._arms:
            uniform = self._arm(UNIFORM, self.budget)
            if self.name == UNIFORM:
                self._arms = (uniform,)
            else:
                arm = self._matched(folder)
                self._arms = (uniform, arm) if self.config.baseline else (arm,)
        return self._arms

    def _matched(self, folder: Path | None) -> GrowthArm:
        if self.config.match == "tokens":
            return self._arm(self.name, self.budget)
        if self.config.match == "flops":
            seeds, task = range(self.config.seeds), self.task
            return GrowthArm.at_equal_cost(self.name, self.schedule, task.settings, task, self.budget, seeds)
        recorded = None if folder is None else recorded_steps(folder / self.name)
        return self._arm(self.name, self._timed_steps() if recorded is None else recorded)

    def _arm(self, name: str, steps: int) -> GrowthArm:
        """An arm that takes `steps` with every seed."""
        schedule = preset(UNIFORM, self.schedule.depth) if name == UNIFORM else self.schedule
        schedule.bounds(steps)
        return GrowthArm(name, schedule, self.task.settings, dict.fromkeys(range(self.config.seeds), steps))

    def _timed_steps(self) -> int:
        if not is_alone():
            raise TrainError(
                "processes that time their own steps would not agree on their number; give --match flops or --match "
                "tokens"
            )
        task = self.task
        relative = relative_step_times(
            task.base, task.splits, self.schedule, self.budget, task.cost, task.settings
        )  # fmt: skip
        return steps_that_take(self.schedule, relative, self.budget)


def _says(
    config: GrowthTraining, task: GrowthTask, schedule: GrowthSchedule, budget: int, arms: tuple[GrowthArm, ...]
) -> Iterator[str]:
    """The model, the text, the schedule in words and as a chart of depth by time, and what it costs."""
    yield from task.says()
    for warning in schedule.warnings():
        yield f"note: {warning}"
    yield explain(schedule)
    yield chart(schedule, _WIDTH)
    steps, batch = arms[-1].steps[0], task.settings.batch_size
    shares = phase_shares(schedule, task.cost)
    for phase, share, (first, end) in zip(schedule.phases, shares, schedule.bounds(steps), strict=True):
        yield f"{phase.name}: steps {first:,} to {end - 1:,}, each {share:.0%} of the operations of a uniform step"
    tokens = batch * task.length
    uniform = flops_per_token(preset(UNIFORM, schedule.depth).phases[0], task.cost) * tokens
    share = share_of_uniform(schedule, task.cost)
    yield (
        f"cost: {steps:,} steps of {tokens:,} tokens, {share * steps * uniform:.3g} operations; uniform takes "
        f"{budget:,} steps and {budget * uniform:.3g} operations (equal {config.match})"
    )
    epochs = steps * batch / task.windows
    yield f"text: {task.splits.name}, read {epochs:.2f} times; {layer_epochs(schedule, steps, epochs)}"
    count = config.seeds * len(arms)
    yield f"{count} training{'s' * (count != 1)}: {', '.join(arm.name for arm in arms)}"
