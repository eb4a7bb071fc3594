"""The rows of a run of trainings in phases, made from its finished trainings each time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from layerwise.experiments.growth.arms import length_of
from layerwise.experiments.growth.config import UNIFORM
from layerwise.experiments.growth.held_out import held_out_loss
from layerwise.experiments.growth.task import GrowthTask
from layerwise.experiments.reporter import Reporter
from layerwise.experiments.training_runs import training_rows
from layerwise.measure.cost.frontier import CostPoint
from layerwise.results import Run
from layerwise.results.rows import Score
from layerwise.results.training_record import MODEL, TrainingRecord, trained_models
from layerwise.results.vocabulary import ACCOUNTING, EPOCHS, HELD_OUT, NULL, SCHEDULE, TRAINING, of_budget
from layerwise.schedule import GrowthSchedule
from layerwise.train.phases.metrics import (
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
    known = {row.key: row for row in run.store.scores(HELD_OUT)}
    rows: dict[tuple[str, int], Score] = {}
    for number, ((name, seed), path) in enumerate(models.items()):
        reporter.progress(f"{name}/{seed}  held-out text", number / len(models))
        arm, share = length_of(name)
        row = Score(HELD_OUT, "nll", 0.0, arm=arm, seed=seed, amount=share)
        rows[name, seed] = known.get(row.key) or held_out_loss(path.parent, task, arm=arm, seed=seed, amount=share)
    if not run.store.scores(NULL):
        run.store.replace_scores(NULL, null_rows(task.splits))
    run.store.replace_scores(HELD_OUT, [*rows.values(), *arm_rows(rows.values())])
    labelled = {(arm, seed): each for arm, of in arms.items() for seed, each in of.records.items()}
    run.store.replace_scores(TRAINING, list(_trainings(labelled)))
    pace = step_pace(each for (arm, _), each in labelled.items() if _is_uniform(arm))
    run.store.replace_scores(
        SCHEDULE,
        [row for arm, of in arms.items() if not _is_length(arm) for row in schedule_rows(arm, of.schedule, _steps(of))],
    )
    run.store.replace_scores(
        EPOCHS,
        [
            row
            for name, of in arms.items()
            for arm, share in (length_of(name),)
            for row in epoch_rows(arm, of.schedule, _steps(of), _epochs(of), share)
        ],
    )
    run.store.replace_scores(ACCOUNTING, _accounting(arms, task, pace))
    return {arm: _points(arm, of, rows, pace) for arm, of in arms.items()}


def _trainings(labelled: Mapping[tuple[str, int], TrainingRecord]) -> Iterator[Score]:
    """Losses and figures; of the seconds of a step in one phase, the `part` is that phase."""
    for (name, seed), record in labelled.items():
        arm, share = length_of(name)
        phases = {f"step_seconds {phase.name}": phase.name for phase in _schedule(record).phases}
        for row in training_rows({(arm, seed): record}):
            phase = phases.get(row.metric)
            yield replace(
                row, metric=row.metric if phase is None else "step_seconds", part=phase, condition=of_budget(share)
            )


def _accounting(arms: Mapping[str, Finished], task: GrowthTask, pace: float | None) -> list[Score]:
    rows = []
    for arm, of in arms.items():
        if not _is_length(arm):
            paces = phase_paces(list(of.records.values()), of.schedule)
            rows += accounting_rows(arm, of.schedule, _steps(of), task.cost, paces, pace)
    return rows


def _points(
    arm: str, of: Finished, held_out: Mapping[tuple[str, int], Score], pace: float | None
) -> dict[int, CostPoint]:
    """Where the trainings of an arm ended; every length of uniform takes the steps of all of them for its pace."""
    records = of.records
    own = step_pace(records.values())
    paces = phase_paces(list(records.values()), of.schedule)
    if _is_uniform(arm):
        own, paces = pace, {}
    return {
        seed: point(
            each,
            held_out[arm, seed].value,
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
    return length_of(arm)[0] == UNIFORM


def _is_length(arm: str) -> bool:
    """Whether an arm is another one at another length: no arm of its own, but a point on that one's frontier."""
    return length_of(arm)[1] is not None
