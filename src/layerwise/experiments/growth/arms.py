"""An arm: one way to train the model of a task, with every seed.

    FOLDER/ARM/seed-N/model     a finished training, with its record, which holds the schedule

Every training resumes by itself, so the same command resumes an interrupted experiment.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from layerwise.errors import RunError
from layerwise.experiments.growth.budget import check_epochs, recipe_of, steps_within
from layerwise.experiments.growth.config import UNIFORM
from layerwise.experiments.growth.task import GrowthTask
from layerwise.experiments.reporter import Reporter
from layerwise.experiments.sentences import duration
from layerwise.experiments.trainings import training_progress
from layerwise.results.checked import read
from layerwise.results.training_record import FILE, MODEL, TrainingRecord
from layerwise.schedule import GrowthSchedule
from layerwise.train.checkpoint_dir import CONFIG, existing_run
from layerwise.train.phases.runner import growth_runner
from layerwise.train.recipe import Recipe, Settings
from layerwise.train.training import STATES, train, training_config


@dataclass(frozen=True, slots=True)
class GrowthArm:
    """A way to train the model of a task: a schedule, settings, and for each seed the steps that its budget buys."""

    name: str
    schedule: GrowthSchedule
    settings: Settings
    steps: Mapping[int, int]

    def recipe(self, task: GrowthTask, seed: int) -> Recipe:
        """What is trained with `seed`."""
        steps = self.steps[seed]
        settings = replace(self.settings, epochs=steps * self.settings.batch_size / task.windows)
        return recipe_of(self.name, self.schedule, settings, steps, task.cost, from_scratch=task.reinitialized)

    def train(
        self,
        task: GrowthTask,
        seed: int,
        folder: Path,
        arguments: Mapping[str, Any],
        reporter: Reporter,
        *,
        prefix: str = "",
    ) -> TrainingRecord:
        """Train with `seed` in `folder`/ARM/seed-N, or resume; what is finished is not trained again.

        `arguments` are further `TrainingArguments`; `prefix` stands before the name of the arm in what is reported.
        """
        label = f"{prefix}{self.name}/{seed}"
        path = folder / self.name / f"seed-{seed}"
        finished = (path / MODEL / FILE).is_file()
        record = train(
            task.base, task.splits, self.recipe(task, seed), seed, path,
            progress=training_progress(reporter, label), arguments=arguments,
        )  # fmt: skip
        if not finished:
            losses = [moment.loss for moment in record.history if moment.kind == "validation"]
            last = f", validation loss {losses[-1]:.3f}" if losses else ""
            reporter.log(f"{label}: {record.steps:,} steps in {duration(record.seconds)}{last}")
        return record


def arm_at_equal_cost(
    name: str, schedule: GrowthSchedule, settings: Settings, task: GrowthTask, budget: int, seeds: Iterable[int]
) -> GrowthArm:
    """An arm that spends the operations of `budget` uniform steps, with every seed."""
    steps = {
        seed: steps_within(schedule, task.cost, budget, seed, settings.gradient_accumulation_steps) for seed in seeds
    }
    return GrowthArm(name, schedule, settings, steps)


def folder_name(name: str) -> str:
    """The name of a schedule as that of an arm, which is a folder's too.

    >>> folder_name("my schedule / 2")
    'my-schedule-2'
    """
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "schedule"


def length_of(name: str) -> tuple[str, float | None]:
    """The arm whose trainings a folder of that name holds, and the share of the budget where they have another.

    >>> length_of("published@0.634"), length_of("published")
    (('published', 0.634), ('published', None))
    """
    arm, _, share = name.partition("@")
    return arm, float(share) if share else None


def check_arms(task: GrowthTask, arms: Iterable[GrowthArm], max_epochs: float, folder: Path | None) -> None:
    """Raise what any of the trainings would raise for its model, its text or the disk, before there is a run folder.

    `folder` is that of the run, whose trainings must be these; `None` where the folder does not matter.
    """
    for arm in arms:
        name = arm.name if arm.name == UNIFORM else f"{arm.name}, for the cost of {UNIFORM},"
        check_epochs(max(arm.steps.values()), arm.settings.batch_size, task.windows, max_epochs, name)
        for seed in sorted(arm.steps):
            recipe = arm.recipe(task, seed)
            wanted = training_config(task.base, task.splits, recipe, seed)
            path = Path() if folder is None else folder / arm.name / f"seed-{seed}"
            finished = None if folder is None else existing_run(path, wanted)
            if seed == min(arm.steps) and finished is None:
                assert recipe.growth is not None, "an arm has a schedule"
                growth_runner(task.stack, recipe.growth, task.splits, wanted, path / STATES)


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
