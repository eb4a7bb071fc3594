"""A training in phases that is ready to run: a schedule and, beside it, uniform training, each with every seed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from layerwise.errors import TrainError
from layerwise.experiments.cluster.pieces import Telling
from layerwise.experiments.engines.evaluations import evaluation_work
from layerwise.experiments.engines.trainings import recipe_works, steps_behind
from layerwise.experiments.engines.work import Work
from layerwise.experiments.experiment import Inputs, Prepared
from layerwise.experiments.growth.arms import GrowthArm, arm_at_equal_cost, check_arms, folder_name, recorded_steps
from layerwise.experiments.growth.budget import check_epochs, check_initial_weights
from layerwise.experiments.growth.config import UNIFORM, GrowthTraining
from layerwise.experiments.growth.headline import headline_rows
from layerwise.experiments.growth.opening import open_task
from layerwise.experiments.growth.pieces import ArmTraining, train_arms
from layerwise.experiments.growth.rows import finished_arms, write_rows
from layerwise.experiments.reporter import Reporter
from layerwise.experiments.trainings import discard_trainings
from layerwise.measure.cost.frontier import GROWTH, Points, equal_rows
from layerwise.measure.workers import Emit, Plain
from layerwise.results import Run
from layerwise.results.training_record import MODEL
from layerwise.schedule import chart, explain, preset
from layerwise.schedule.cost import flops_per_token, phase_shares, share_of_uniform
from layerwise.schedule.exposure import layer_epochs
from layerwise.train.arguments import check_arguments
from layerwise.train.phases.metrics import TEST_WINDOWS
from layerwise.train.phases.step_time import relative_step_times, steps_that_take
from layerwise.train.processes import is_alone, shared_recipe

_WIDTH = 60
"""Columns of the chart of a schedule."""


class PreparedGrowth(Prepared):
    """A model, its text, a schedule of its depth, and the steps of every training.

    Without steps and epochs uniform training reads the text once. Raises `PlanError` for a schedule of another depth
    and for layers that would grow in over trained ones, `TrainError` for a text that would be read too often, and what
    `open_task` raises.
    """

    def __init__(self, config: GrowthTraining, reporter: Reporter, inputs: Inputs) -> None:
        self.config = config = replace(config, precision=config.resolved_precision(config.device, config.run))
        self.arguments = config.trainer_arguments(config.device)
        check_arguments(self.arguments)
        self.task = open_task(config, reporter, inputs)
        source = config.source()
        self.name, self.schedule = folder_name(source.name), source.schedule(self.task.stack.depth)
        self.settings = replace(self.task.settings, **config.changes())
        check_initial_weights(self.schedule, self.task.pretrained)
        self.budget = config.steps or self.task.steps_of(1.0 if config.epochs is None else config.epochs, self.settings)
        check_epochs(self.budget, self.settings.batch_size, self.task.windows, config.max_epochs, UNIFORM)
        self._arms: tuple[GrowthArm, ...] = ()
        if config.overwrite:
            check_arms(self.task, self._arms_in(None), config.max_epochs, None)
        self.manifest = self.task.manifest(config.seed, self.arguments)
        options = {"settings": self.settings.to_json(), "budget": self.budget, "match": config.match}
        self.recipe = shared_recipe(options, self.arguments)

    def describe(self) -> Iterator[str]:
        """The model, the text, the schedule in words and as a chart of depth by time, and what it costs."""
        task, schedule = self.task, self.schedule
        yield from task.describe()
        for warning in schedule.warnings():
            yield f"note: {warning}"
        yield explain(schedule)
        yield chart(schedule, _WIDTH)
        steps = self._arms_in(None)[-1].steps[0]
        shares = phase_shares(schedule, task.cost)
        for phase, share, (first, end) in zip(schedule.phases, shares, schedule.bounds(steps), strict=True):
            yield f"{phase.name}: steps {first:,} to {end - 1:,}, each {share:.0%} of the operations of a uniform step"
        tokens = self.settings.batch_size * task.length
        uniform = flops_per_token(preset(UNIFORM, schedule.depth).phases[0], task.cost) * tokens
        share = share_of_uniform(schedule, task.cost)
        yield (
            f"cost: {steps:,} steps of {tokens:,} tokens, {share * steps * uniform:.3g} operations; uniform takes "
            f"{self.budget:,} steps and {self.budget * uniform:.3g} operations (equal {self.config.match})"
        )
        epochs = steps * self.settings.batch_size / task.windows
        yield f"text: {task.splits.name}, read {epochs:.2f} times; {layer_epochs(schedule, steps, epochs)}"
        count = self.config.seeds * len(self._arms_in(None))
        yield f"{count} training{'s' * (count != 1)}: {', '.join(arm.name for arm in self._arms_in(None))}"

    def check(self, folder: Path) -> None:
        """Raise `TrainError` for what the model, the text or the disk does not allow, and for other trainings."""
        check_arms(self.task, self._arms_in(folder), self.config.max_epochs, folder)

    def discard(self, folder: Path) -> None:
        """Remove every training."""
        discard_trainings(folder)

    def works(self, folder: Path, run: Run | None) -> Iterator[Work]:
        """The trainings that are not finished, and their losses on the held-out text."""
        task = self.task
        left = {}
        for arm in self._arms_in(folder):
            paths = [ArmTraining(arm, seed, folder).own_folder for seed in arm.steps]
            left[arm.name] = (arm.recipe(task, 0), steps_behind(paths))
        models = sum(len(behind) for _, behind in left.values())
        held_out = min(TEST_WINDOWS, len(task.splits.test))
        if not models:
            return
        yield evaluation_work("held-out text", task.stack, task.splits, models * held_out / len(task.splits.test))
        yield from recipe_works(task.base, task.stack, task.splits, left, self.arguments)

    def train(self, folder: Path, reporter: Reporter) -> None:
        """Train every arm with a seed before the next seed."""
        trainings = [
            ArmTraining(arm, seed, folder) for seed in range(self.config.seeds) for arm in self._arms_in(folder)
        ]
        for _ in train_arms(trainings, self.task, self.arguments, self.spread, reporter):
            pass

    def models_of(self, folder: Path) -> Mapping[str, Path]:
        """The model of every schedule and seed."""
        seeds, arms = range(self.config.seeds), self._arms_in(folder)
        return {f"{arm.name}/{seed}": folder / arm.name / f"seed-{seed}" / MODEL for arm in arms for seed in seeds}

    def carry_out(self, piece: Plain, emit: Emit) -> Plain:
        """In a worker: one training."""
        ArmTraining.of(piece).carry_out(self.task, self.arguments, Telling(emit))

    def measure(self, run: Run, reporter: Reporter) -> None:
        """Store the rows of every finished training, and of every arm against uniform where their costs are equal."""
        points = write_rows(run, self.task, reporter)
        reference = points.get(UNIFORM)
        arms: dict[str, Points] = {arm: of for arm, of in points.items() if arm.partition("@")[0] != UNIFORM}
        rows = headline_rows(finished_arms(run.folder), points, self.task.cost)
        run.store.replace_scores(GROWTH, [*equal_rows(arms, reference, UNIFORM), *rows] if reference and arms else [])

    def _arms_in(self, folder: Path | None) -> tuple[GrowthArm, ...]:
        """The trainings, uniform first, unless it is not wanted.

        How many steps take equal seconds is timed once, unless trainings with so many have begun in `folder`, which
        must be resumed.
        """
        if not self._arms:
            uniform = self._arm(UNIFORM, self.budget)
            if self.name == UNIFORM:
                self._arms = (uniform,)
            else:
                arm = self._matched_arm(folder)
                self._arms = (uniform, arm) if self.config.baseline else (arm,)
        return self._arms

    def _matched_arm(self, folder: Path | None) -> GrowthArm:
        if self.config.match == "tokens":
            return self._arm(self.name, self.budget)
        if self.config.match == "flops":
            seeds = range(self.config.seeds)
            return arm_at_equal_cost(self.name, self.schedule, self.settings, self.task, self.budget, seeds)
        recorded = None if folder is None else recorded_steps(folder / self.name)
        return self._arm(self.name, self._timed_steps() if recorded is None else recorded)

    def _arm(self, name: str, steps: int) -> GrowthArm:
        """An arm that takes `steps` with every seed."""
        schedule = preset(UNIFORM, self.schedule.depth) if name == UNIFORM else self.schedule
        schedule.bounds(steps)
        return GrowthArm(name, schedule, self.settings, dict.fromkeys(range(self.config.seeds), steps))

    def _timed_steps(self) -> int:
        if not is_alone():
            raise TrainError(
                "processes that time their own steps would not agree on their number; give --match flops or --match "
                "tokens"
            )
        task = self.task
        relative = relative_step_times(task.base, task.splits, self.schedule, self.budget, task.cost, self.settings)
        return steps_that_take(self.schedule, relative, self.budget)
