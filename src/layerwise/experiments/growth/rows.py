"""The rows of a run of trainings in phases, made from its finished trainings each time.

Held-out losses are kept a model at a time; whatever else is said of a training follows from its record.

Those of the published headline are what a schedule saves to reach uniform's loss, and what it does at equal steps.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from layerwise.experiments.engines.call import CallUnit, RoundsUnit
from layerwise.experiments.engines.steps import Unit
from layerwise.experiments.growth.arms import length_of
from layerwise.experiments.growth.config import UNIFORM
from layerwise.experiments.growth.task import GrowthTask
from layerwise.experiments.training_runs import training_rows
from layerwise.measure.cost.frontier import EQUAL, CostPoint, Frontier, Points
from layerwise.results.rows import Score
from layerwise.results.training_record import MODEL, TrainingRecord, trained_models
from layerwise.results.vocabulary import BUDGET, HELD_OUT, NULL, TOKENS, of_budget
from layerwise.schedule import GrowthSchedule, ModelCost
from layerwise.train.phases.metrics import (
    accounting_rows,
    arm_rows,
    epoch_rows,
    held_out_row,
    null_rows,
    phase_paces,
    point,
    schedule_rows,
    seconds_of_steps,
    step_pace,
)
from layerwise.train.phases.savings import loss_ratio_row, losses_by_cost, saving_rows, time_saved_row
from layerwise.train.recipe import GrowthVariant

Model = tuple[str | None, int | None, float | None]
"""The arm, the seed and the share of the budget of a model, as its rows have them."""


@dataclass(frozen=True, slots=True)
class FinishedArm:
    """The finished trainings of an arm: its schedule, the training records by seed, and the name of its folder.

    An arm that was trained for a share of the budget is another one than the arm itself.
    """

    folder: str
    schedule: GrowthSchedule
    records: Mapping[int, TrainingRecord]

    @property
    def arm(self) -> str:
        """The arm, whatever share of the budget it was trained for."""
        return length_of(self.folder)[0]

    @property
    def share(self) -> float | None:
        """The share of the budget, where it is another than the whole."""
        return length_of(self.folder)[1]

    @property
    def first(self) -> TrainingRecord:
        """The training that rows lay the phases over: that of the first seed; others differ where chance decides."""
        return self.records[min(self.records)]

    @property
    def paces(self) -> dict[str, float]:
        """The seconds of a step by phase."""
        return phase_paces(list(self.records.values()), self.schedule)


def finished_arms(folder: Path) -> dict[str, FinishedArm]:
    """Every arm with a finished training in a run folder, by the name of its folder."""
    records: dict[str, dict[int, TrainingRecord]] = {}
    for model in trained_models(folder):
        record = TrainingRecord.read(model)
        if record is not None and record.recipe.get("variant") == GrowthVariant.NAME:
            records.setdefault(record.arm, {})[record.seed] = record
    return {arm: FinishedArm(arm, _schedule(next(iter(own.values()))), own) for arm, own in records.items()}


def training_scores(
    task: GrowthTask, folder: Path, finished: Mapping[str, FinishedArm]
) -> Generator[Unit[Any], Any, tuple[list[Score], dict[str, Points]]]:
    """The rows of every finished training in the run `folder`, and where each ended, by arm and seed."""
    models: dict[Model, Path] = {
        (of.arm, seed, of.share): folder / of.folder / f"seed-{seed}" / MODEL
        for of in finished.values()
        for seed in of.records
    }

    def loss(model: Model) -> Iterator[Score]:
        arm, seed, share = model
        device = str(task.stack.device)
        yield held_out_row(models[model], task.splits, device, arm=arm, seed=seed, amount=share)

    measured = yield from RoundsUnit(
        HELD_OUT, list(models), lambda row: (row.arm, row.seed, row.amount), lambda: loss,
        lambda model: f"{model[0]}/{model[1]}  held-out text",
    )  # fmt: skip
    null = yield from CallUnit(NULL, lambda: null_rows(task.splits))
    losses = {model: measured[model][0] for model in models}
    pace = step_pace(each for of in finished.values() if of.arm == UNIFORM for each in of.records.values())
    rows = [*null, *losses.values(), *arm_rows(losses.values())]
    for of in finished.values():
        rows += _training_rows(of)
    for of in finished.values():
        rows += epoch_rows(of.arm, of.schedule, of.first.steps, of.first.epochs, of.share)
        if of.share is None:
            rows += schedule_rows(of.arm, of.schedule, of.first.steps)
            rows += accounting_rows(of.arm, of.schedule, of.first.steps, task.cost, of.paces, pace)
    return rows, {name: _points(of, losses, pace) for name, of in finished.items()}


def _training_rows(of: FinishedArm) -> Iterator[Score]:
    """Losses and figures; of the seconds of a step in one phase, the `part` is that phase."""
    for seed, record in of.records.items():
        phases = {f"step_seconds {phase.name}": phase.name for phase in _schedule(record).phases}
        for row in training_rows({(of.arm, seed): record}):
            phase = phases.get(row.metric)
            metric = row.metric if phase is None else "step_seconds"
            yield replace(row, metric=metric, part=phase, condition=of_budget(of.share))


def _points(of: FinishedArm, held_out: Mapping[Model, Score], pace: float | None) -> Points:
    """Where the trainings of an arm ended; every length of uniform takes the steps of all of them for its pace."""
    own, paces = (pace, {}) if of.arm == UNIFORM else (step_pace(of.records.values()), of.paces)
    return {
        seed: point(
            each,
            held_out[of.arm, seed, of.share].value,
            seconds_of_steps(of.schedule, each.steps, paces, own or each.seconds / each.steps),
        )
        for seed, each in of.records.items()
    }


def _schedule(record: TrainingRecord) -> GrowthSchedule:
    return GrowthSchedule.from_json(record.recipe["options"]["schedule"])


def headline_rows(finished: Mapping[str, FinishedArm], ends: Mapping[str, Points], cost: ModelCost) -> list[Score]:
    """The rows of `layerwise.train.phases.savings`, of every arm that has seeds in common with uniform.

    `ends` are where the trainings of every arm ended, on held-out text. An arm that was trained to several lengths
    (`ARM@SHARE`) is read off their ends, another off its curve. None without uniform.
    """
    if UNIFORM not in finished:
        return []
    whole = ends[UNIFORM]
    lengths = {
        seed: [ends[name][seed] for name, of in finished.items() if of.arm == UNIFORM and seed in of.records]
        for seed in whole
    }
    rows: list[Score] = []
    for name, of in finished.items():
        if of.arm == UNIFORM or not set(of.records) & set(whole):
            continue
        rows += _loss_ratios(of, ends[name], lengths, whole)
        if of.share is None:
            rows += _savings(of, finished, ends, cost)
            rows += _time_saved(of, finished[UNIFORM])
    return rows


def _savings(
    own: FinishedArm, finished: Mapping[str, FinishedArm], ends: Mapping[str, Points], cost: ModelCost
) -> list[Score]:
    trained = [name for name, of in finished.items() if of.arm == own.arm]
    seeds = set.intersection(*(set(ends[name]) for name in trained))
    if len(trained) > 1 and seeds:
        points = {seed: [ends[name][seed] for name in trained] for seed in seeds}
        return saving_rows(own.arm, points, ends[UNIFORM], UNIFORM, len(trained))
    curves, uniform = _curves(own, cost), _curves(finished[UNIFORM], cost)
    return saving_rows(own.arm, curves, {seed: curve[-1] for seed, curve in uniform.items()}, UNIFORM, 1)


def _curves(of: FinishedArm, cost: ModelCost) -> dict[int, Sequence[CostPoint]]:
    """The curves of an arm's trainings, by seed; a training that was never looked at has none."""
    pace = step_pace(of.records.values())
    curves = {
        seed: losses_by_cost(record, of.schedule, cost, of.paces, pace or record.seconds / record.steps)
        for seed, record in of.records.items()
    }
    return {seed: curve for seed, curve in curves.items() if curve}


def _loss_ratios(
    of: FinishedArm, ends: Points, lengths: Mapping[int, Sequence[CostPoint]], whole: Points
) -> list[Score]:
    """At equal tokens where uniform's loss there can be read; of an arm with a smaller budget against the whole too."""
    own = {seed: point.loss for seed, point in ends.items() if seed in whole}
    rows = []
    equal = {seed: _loss_at(ends[seed].costs["tokens"], lengths[seed], whole[seed]) for seed in own}
    known = {seed: loss for seed, loss in equal.items() if loss is not None}
    if len(known) == len(own):
        rows.append(loss_ratio_row(of.arm, own, known, UNIFORM, TOKENS, of.share))
    if of.share is not None:
        rows.append(loss_ratio_row(of.arm, own, {seed: whole[seed].loss for seed in own}, UNIFORM, BUDGET, of.share))
    return rows


def _loss_at(tokens: float, lengths: Sequence[CostPoint], whole: CostPoint) -> float | None:
    """Uniform's loss after so many tokens: of its own training where that read as many, else off its frontier."""
    if abs(tokens / whole.costs["tokens"] - 1) <= EQUAL["tokens"]:
        return whole.loss
    if len({point.costs["tokens"] for point in lengths}) < 2:
        return None
    line = Frontier.of(lengths, "tokens")
    return line.at(tokens) if line.reaches(tokens) else None


def _time_saved(of: FinishedArm, uniform: FinishedArm) -> list[Score]:
    """Of as many steps as uniform has, each at the pace of its own training."""
    own, others = {}, {}
    for seed, record in of.records.items():
        plain = uniform.records.get(seed)
        pace, uniform_pace = step_pace([record]), None if plain is None else step_pace([plain])
        if plain is not None and pace is not None and uniform_pace is not None:
            own[seed] = seconds_of_steps(of.schedule, plain.steps, phase_paces([record], of.schedule), pace)
            others[seed] = uniform_pace * plain.steps
    return [time_saved_row(of.arm, own, others, UNIFORM)] if own else []
