"""A run of trainings in phases: what they are, that they can be, that they are carried out, and the rows they leave.

    RUN/ARM/seed-N/model     a finished training, with its pedigree, which holds the schedule
    RUN/run.sqlite           rows, made anew from the finished trainings whenever they are asked for

Every training resumes by itself, so a command that was stopped goes on where it was.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from layerwise.cli.pupil import Pupil
from layerwise.cli.screen import duration
from layerwise.measure.frontier import Point
from layerwise.plan.growth import GrowthSchedule
from layerwise.results import Manifest, Run
from layerwise.results.pedigree import FILE, MODEL, Pedigree, trained_models
from layerwise.results.rows import Score
from layerwise.train.assessment import training_rows
from layerwise.train.folder import ASKED, occupant
from layerwise.train.growing import growing
from layerwise.train.growth_rows import (
    ACCOUNTING,
    HELD_OUT,
    SCHEDULE,
    TRAINING,
    accounting_rows,
    arm_rows,
    held_out_row,
    phase_paces,
    point,
    schedule_rows,
    seconds_of_steps,
    step_pace,
)
from layerwise.train.growth_study import UNIFORM, check_passes, recipe_of, steps_within
from layerwise.train.recipe import Recipe, Settings
from layerwise.train.training import STATES, train

FAMILY = "growth"
"""What the manifest of such a run calls itself."""

Say = Callable[[str], None]
Progress = Callable[[str, float], None]


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
class Told:
    """Who is told: `say` receives sentences, `progress` a training and the share of it that is done."""

    say: Say
    progress: Progress


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
        seed = min(arm.steps)
        recipe = arm.recipe(pupil, seed)
        asked = {"base": pupil.base.weights, "data": pupil.splits.digest, "recipe": recipe.to_json(), "seed": seed}
        place = Path() if folder is None else folder / arm.name / f"seed-{seed}"
        if folder is None or occupant(place, asked) is None:
            assert recipe.growth is not None, "an arm has a schedule"
            growing(pupil.stack, recipe.growth, pupil.splits, asked, place / STATES)


def begun_steps(folder: Path) -> int | None:
    """The steps of the trainings that are finished or begun in the folder of an arm; `None` where there are none."""
    for path in sorted((*folder.glob(f"seed-*/{MODEL}/{FILE}"), *folder.glob(f"seed-*/{ASKED}"))):
        return int(json.loads(path.read_text())["recipe"]["growth"]["steps"])
    return None


def manifest_of(pupil: Pupil, seed: int) -> Manifest:
    """The provenance of a run; arms and seeds can be added later."""
    stack, splits = pupil.stack, pupil.splits
    windows: Sequence[Any] = getattr(splits.test, "windows", ())
    return Manifest(
        model=stack.source.name, revision=stack.source.revision, weight_hash=pupil.base.weights,
        dtype=str(stack.dtype).removeprefix("torch."), device=str(stack.device.type), corpus=splits.name,
        corpus_hash=splits.digest, documents=len({(window.task, window.document) for window in windows}),
        tokens=sum(window.scored for window in windows), window=pupil.length, families=(FAMILY,),
        tasks=("from scratch",) if pupil.redraws else (), seed=seed, layers=stack.path, command=tuple(sys.argv),
    )  # fmt: skip


def announce(pupil: Pupil, run: Run, say: Say) -> None:
    """Say what grows, what it reads, and where it will lie."""
    splits, stack = pupil.splits, pupil.stack
    begins = "its own weights" if pupil.trained else "random weights"
    say(f"{stack.source.name}: {stack.depth} layers, {stack.device}, from {begins}")
    say(
        f"{splits.name}: {pupil.windows:,} windows of {pupil.length} tokens to train, {len(splits.validation):,} to "
        f"select, {len(splits.test):,} to report, of different documents"
    )
    if pupil.left_out > 0.005:
        say(f"note: {pupil.left_out:.1%} of the tokens to train on stand behind a document's last whole window")
    say(f"run folder: {run.folder}")
    for change in run.changes:
        say(f"note: {change}")


def train_arm(
    pupil: Pupil, arm: Arm, seed: int, folder: Path, arguments: Mapping[str, Any], told: Told, *, note: str = ""
) -> Pedigree:
    """Train an arm with a seed in `folder`/ARM/seed-N, or carry on; what is finished is not trained again."""
    label = f"{note}{arm.name}/{seed}"
    place = folder / arm.name / f"seed-{seed}"
    finished = (place / MODEL / FILE).is_file()

    def progress(step: int, steps: int, loss: float | None) -> None:
        told.progress(label if loss is None else f"{label}  loss {loss:.3f}", step / steps)

    done = train(
        pupil.base, pupil.splits, arm.recipe(pupil, seed), seed, place, progress=progress, arguments=arguments
    )  # fmt: skip
    if not finished:
        looked = [moment.loss for moment in done.history if moment.kind == "validation"]
        told.say(
            f"{label}: {done.steps:,} steps in {duration(done.seconds)}"
            + (f", validation loss {looked[-1]:.3f}" if looked else "")
        )
    return done


@dataclass(frozen=True, slots=True)
class Finished:
    """The finished trainings of one arm: its schedule and their pedigrees, by seed."""

    schedule: GrowthSchedule
    pedigrees: Mapping[int, Pedigree]


def finished_arms(folder: Path) -> dict[str, Finished]:
    """Every arm with a finished training in a run folder, by name."""
    found: dict[str, dict[int, Pedigree]] = {}
    for model in trained_models(folder):
        pedigree = Pedigree.read(model)
        if pedigree is not None and "growth" in pedigree.recipe:
            found.setdefault(pedigree.arm, {})[pedigree.seed] = pedigree
    return {arm: Finished(_schedule(next(iter(pedigrees.values()))), pedigrees) for arm, pedigrees in found.items()}


def assess(run: Run, pupil: Pupil, progress: Progress) -> dict[str, dict[int, Point]]:
    """Write the rows of every finished training into the run; returns where each ended, by arm and seed.

    Held-out losses that are there are not computed again.
    """
    arms = finished_arms(run.folder)
    models = {(arm, seed): run.folder / arm / f"seed-{seed}" / MODEL for arm in arms for seed in arms[arm].pedigrees}
    known = {row.subject: row for row in run.store.scores(HELD_OUT)}
    rows: list[Score] = []
    for number, ((arm, seed), place) in enumerate(models.items()):
        subject = f"{arm}/{seed}"
        progress(f"{subject}  held-out text", number / len(models))
        rows.append(known.get(subject) or held_out_row(subject, place, pupil.splits, str(pupil.stack.device)))
    losses = {row.subject: row.value for row in rows}
    run.store.replace_scores(HELD_OUT, [*rows, *arm_rows(rows)])
    labelled = {f"{arm}/{seed}": each for arm, of in arms.items() for seed, each in of.pedigrees.items()}
    run.store.replace_scores(TRAINING, training_rows(labelled))
    pace = step_pace(each for label, each in labelled.items() if _is_uniform(label))
    run.store.replace_scores(
        SCHEDULE,
        [row for arm, of in arms.items() if not _is_length(arm) for row in schedule_rows(arm, of.schedule, _steps(of))],
    )
    run.store.replace_scores(ACCOUNTING, _accounting(arms, pupil, pace))
    return {arm: _points(arm, of, losses, pace) for arm, of in arms.items()}


def _accounting(arms: Mapping[str, Finished], pupil: Pupil, pace: float | None) -> list[Score]:
    found = []
    for arm, of in arms.items():
        if not _is_length(arm):
            paces = phase_paces(list(of.pedigrees.values()), of.schedule)
            found += accounting_rows(arm, of.schedule, _steps(of), pupil.cost, paces, pace)
    return found


def _points(arm: str, of: Finished, losses: Mapping[str, float], pace: float | None) -> dict[int, Point]:
    """Where the trainings of an arm ended; every length of uniform takes the steps of all of them for its pace."""
    pedigrees = of.pedigrees
    own = step_pace(pedigrees.values())
    paces = phase_paces(list(pedigrees.values()), of.schedule)
    if _is_uniform(arm):
        own, paces = pace, {}
    return {
        seed: point(
            each,
            losses[f"{arm}/{seed}"],
            seconds_of_steps(of.schedule, each.steps, paces, own or each.seconds / each.steps),
        )
        for seed, each in pedigrees.items()
    }


def _schedule(pedigree: Pedigree) -> GrowthSchedule:
    return GrowthSchedule.from_json(pedigree.recipe["growth"]["schedule"])


def _steps(of: Finished) -> int:
    """The steps that rows lay the phases over: those of the first seed; others differ where chance decides."""
    return of.pedigrees[min(of.pedigrees)].steps


def _is_uniform(label: str) -> bool:
    """Whether a training or an arm is uniform's, of any length."""
    return label.partition("/")[0].partition("@")[0] == UNIFORM


def _is_length(arm: str) -> bool:
    """Whether an arm is uniform at another length than its budget: no arm, but a place on the frontier."""
    return arm.startswith(f"{UNIFORM}@")


def is_first_process() -> bool:
    """Whether this process writes rows and speaks, of those that torchrun may have started."""
    return int(os.environ.get("RANK", "0")) == 0


def is_alone() -> bool:
    """Whether this is the only process."""
    return int(os.environ.get("WORLD_SIZE", "1")) == 1
