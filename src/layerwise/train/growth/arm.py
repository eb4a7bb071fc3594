"""An arm: one way to train a pupil, with every seed; that it can be, and that it is carried out.

    FOLDER/ARM/seed-N/model     a finished training, with its pedigree, which holds the schedule

Every training resumes by itself, so what was stopped goes on where it was.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from layerwise.errors import RunError
from layerwise.plan.growth import GrowthSchedule
from layerwise.results.checked_json import read
from layerwise.results.pedigree import FILE, MODEL, Pedigree
from layerwise.train.folder import ASKED, occupant
from layerwise.train.growth.growing import growing
from layerwise.train.growth.pupil import Pupil
from layerwise.train.growth.study import UNIFORM, check_passes, recipe_of, steps_within
from layerwise.train.recipe import Recipe, Settings
from layerwise.train.training import STATES, asked_for, train


@dataclass(frozen=True, slots=True)
class Arm:
    """A way to train a pupil: a schedule, settings, and for each seed the steps that its budget buys."""

    name: str
    schedule: GrowthSchedule
    settings: Settings
    steps: Mapping[int, int]

    def recipe(self, pupil: Pupil, seed: int) -> Recipe:
        """What is trained with `seed`."""
        steps = self.steps[seed]
        settings = replace(self.settings, epochs=steps * self.settings.batch / pupil.windows)
        return recipe_of(self.name, self.schedule, settings, steps, pupil.cost, from_scratch=pupil.redraws)


@dataclass(frozen=True, slots=True)
class Watcher:
    """Who is told: `say` receives sentences, `progress` a training and the share of it that is done, `trained` a
    training that has ended just now, and `expected` the seconds that all of them will take.
    """

    say: Callable[[str], None] = lambda text: None
    progress: Callable[[str, float], None] = lambda label, share: None
    trained: Callable[[str, Pedigree], None] = lambda label, pedigree: None
    expected: Callable[[float], None] = lambda seconds: None


def arm_of(
    name: str, schedule: GrowthSchedule, settings: Settings, pupil: Pupil, budget: int, seeds: Iterable[int]
) -> Arm:
    """An arm that spends the operations of `budget` uniform steps, with every seed."""
    steps = {seed: steps_within(schedule, pupil.cost, budget, seed, settings.accumulation) for seed in seeds}
    return Arm(name, schedule, settings, steps)


def folder_name(name: str) -> str:
    """The name of a schedule as that of an arm, which is a folder's too.

    >>> folder_name("my schedule / 2")
    'my-schedule-2'
    """
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "schedule"


def refuse_unfit(pupil: Pupil, arms: Iterable[Arm], passes: float, folder: Path | None) -> None:
    """Raise what any of the trainings would raise for its model, its text or the disk, before there is a run folder.

    `folder` is that of the run, whose trainings must be these; `None` for a run that will be discarded, or whose
    settings are not known yet.
    """
    for arm in arms:
        what = arm.name if arm.name == UNIFORM else f"{arm.name}, for the cost of {UNIFORM},"
        check_passes(max(arm.steps.values()), arm.settings.batch, pupil.windows, passes, what)
        for seed in sorted(arm.steps):
            recipe = arm.recipe(pupil, seed)
            asked = asked_for(pupil.base, pupil.splits, recipe, seed)
            place = Path() if folder is None else folder / arm.name / f"seed-{seed}"
            finished = None if folder is None else occupant(place, asked)
            if seed == min(arm.steps) and finished is None:
                assert recipe.growth is not None, "an arm has a schedule"
                growing(pupil.stack, recipe.growth, pupil.splits, asked, place / STATES)


def begun_steps(folder: Path) -> int | None:
    """The steps of the trainings that are finished or begun in the folder of an arm; `None` where there are none."""
    for path in sorted((*folder.glob(f"seed-*/{MODEL}/{FILE}"), *folder.glob(f"seed-*/{ASKED}"))):
        try:
            return int(read(path)["recipe"]["growth"]["steps"])
        except (KeyError, TypeError, ValueError) as error:
            raise RunError(
                f"{path} does not say how many steps are trained there; choose another run folder, or --fresh"
            ) from error
    return None


def train_arm(
    pupil: Pupil, arm: Arm, seed: int, folder: Path, arguments: Mapping[str, Any], watcher: Watcher, *, note: str = ""
) -> Pedigree:
    """Train an arm with a seed in `folder`/ARM/seed-N, or carry on; what is finished is not trained again."""
    label = f"{note}{arm.name}/{seed}"
    place = folder / arm.name / f"seed-{seed}"
    finished = (place / MODEL / FILE).is_file()

    def progress(step: int, steps: int, loss: float | None) -> None:
        watcher.progress(label if loss is None else f"{label}  loss {loss:.3f}", step / steps)

    done = train(
        pupil.base, pupil.splits, arm.recipe(pupil, seed), seed, place, progress=progress, arguments=arguments
    )  # fmt: skip
    if not finished:
        watcher.trained(label, done)
    return done
