"""The rows of a run of trainings in phases, made from its finished trainings each time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from layerwise.experiments.growth.config import UNIFORM
from layerwise.experiments.growth.held_out import held_out_loss
from layerwise.experiments.growth.task import GrowthTask
from layerwise.experiments.reporter import Reporter
from layerwise.experiments.training_runs import training_rows
from layerwise.measure.cost.frontier import CostPoint
from layerwise.results import Run
from layerwise.results.rows import Score
from layerwise.results.training_record import MODEL, TrainingRecord, trained_models
from layerwise.schedule import GrowthSchedule
from layerwise.train.phases.metrics import (
    ACCOUNTING,
    EPOCHS,
    HELD_OUT,
    NULL,
    SCHEDULE,
    TRAINING,
    accounting_rows,
    arm_rows,
    epoch_rows,
    null_rows,
    phase_paces,
    point,
    schedule_rows,
    seconds_of_steps,
    step_pace,
)
from layerwise.train.recipe import GrowthVariant


@dataclass(frozen=True, slots=True)
class Finished:
    """The finished trainings of one arm: its schedule, and the training records by seed."""

    schedule: GrowthSchedule
    records: Mapping[int, TrainingRecord]


def finished_arms(folder: Path) -> dict[str, Finished]:
    """Every arm with a finished training in a run folder, by name."""
    records: dict[str, dict[int, TrainingRecord]] = {}
    for model in trained_models(folder):
        record = TrainingRecord.read(model)
        if record is not None and record.recipe.get("variant") == GrowthVariant.NAME:
            records.setdefault(record.arm, {})[record.seed] = record
    return {arm: Finished(_schedule(next(iter(own.values()))), own) for arm, own in records.items()}


def write_rows(run: Run, task: GrowthTask, reporter: Reporter) -> dict[str, dict[int, CostPoint]]:
    """Store the rows of every finished training in the run; returns where each ended, by arm and seed.

    Held-out losses that are stored are not computed again.
    """
    arms = finished_arms(run.folder)
    models = {(arm, seed): run.folder / arm / f"seed-{seed}" / MODEL for arm in arms for seed in arms[arm].records}
    known = {row.subject: row for row in run.store.scores(HELD_OUT)}
    rows: list[Score] = []
    for number, ((arm, seed), path) in enumerate(models.items()):
        subject = f"{arm}/{seed}"
        reporter.progress(f"{subject}  held-out text", number / len(models))
        rows.append(known.get(subject) or held_out_loss(subject, path.parent, task))
    losses = {row.subject: row.value for row in rows}
    if not run.store.scores(NULL):
        run.store.replace_scores(NULL, null_rows(task.splits))
    run.store.replace_scores(HELD_OUT, [*rows, *arm_rows(rows)])
    labelled = {(arm, seed): each for arm, of in arms.items() for seed, each in of.records.items()}
    run.store.replace_scores(TRAINING, training_rows(labelled))
    pace = step_pace(each for (arm, _), each in labelled.items() if _is_uniform(arm))
    run.store.replace_scores(
        SCHEDULE,
        [row for arm, of in arms.items() if not _is_length(arm) for row in schedule_rows(arm, of.schedule, _steps(of))],
    )
    run.store.replace_scores(
        EPOCHS,
        [row for arm, of in arms.items() for row in epoch_rows(arm, of.schedule, _steps(of), _epochs(of))],
    )
    run.store.replace_scores(ACCOUNTING, _accounting(arms, task, pace))
    return {arm: _points(arm, of, losses, pace) for arm, of in arms.items()}


def _accounting(arms: Mapping[str, Finished], task: GrowthTask, pace: float | None) -> list[Score]:
    rows = []
    for arm, of in arms.items():
        if not _is_length(arm):
            paces = phase_paces(list(of.records.values()), of.schedule)
            rows += accounting_rows(arm, of.schedule, _steps(of), task.cost, paces, pace)
    return rows


def _points(arm: str, of: Finished, losses: Mapping[str, float], pace: float | None) -> dict[int, CostPoint]:
    """Where the trainings of an arm ended; every length of uniform takes the steps of all of them for its pace."""
    records = of.records
    own = step_pace(records.values())
    paces = phase_paces(list(records.values()), of.schedule)
    if _is_uniform(arm):
        own, paces = pace, {}
    return {
        seed: point(
            each,
            losses[f"{arm}/{seed}"],
            seconds_of_steps(of.schedule, each.steps, paces, own or each.seconds / each.steps),
        )
        for seed, each in records.items()
    }


def _schedule(record: TrainingRecord) -> GrowthSchedule:
    return GrowthSchedule.from_json(record.recipe["options"]["schedule"])


def _steps(of: Finished) -> int:
    """The steps that rows lay the phases over: those of the first seed; others differ where chance decides."""
    return of.records[min(of.records)].steps


def _epochs(of: Finished) -> float:
    """How often the text was read: by the first seed, as `_steps`."""
    return of.records[min(of.records)].epochs


def _is_uniform(arm: str) -> bool:
    """Whether an arm is uniform's, of any length."""
    return arm.partition("@")[0] == UNIFORM


def _is_length(arm: str) -> bool:
    """Whether an arm is another one at another length: no arm of its own, but a point on that one's frontier."""
    return "@" in arm
