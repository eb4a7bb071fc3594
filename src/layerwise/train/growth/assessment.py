"""The rows of a run of growth, made anew from its finished trainings whenever they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from layerwise.measure.frontier import Point
from layerwise.plan.growth import GrowthSchedule
from layerwise.results import Run
from layerwise.results.pedigree import MODEL, Pedigree, trained_models
from layerwise.results.rows import Score
from layerwise.train.assessment import training_rows
from layerwise.train.growth.pupil import Pupil
from layerwise.train.growth.rows import (
    ACCOUNTING,
    HELD_OUT,
    NULL,
    SCHEDULE,
    TRAINING,
    accounting_rows,
    arm_rows,
    held_out_row,
    null_rows,
    phase_paces,
    point,
    schedule_rows,
    seconds_of_steps,
    step_pace,
)
from layerwise.train.growth.study import UNIFORM


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


def assess(run: Run, pupil: Pupil, progress: Callable[[str, float], None]) -> dict[str, dict[int, Point]]:
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
    if not run.store.scores(NULL):
        run.store.replace_scores(NULL, null_rows(pupil.splits))
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
