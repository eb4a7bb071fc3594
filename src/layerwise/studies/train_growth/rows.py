"""The rows of growth trainings, made from the finished trainings; held-out losses are stored per model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from layerwise.measure.stats.seeds import seed_difference
from layerwise.plan.schedule import GrowthSchedule, ModelCost
from layerwise.results import Score
from layerwise.results.training_record import MODEL, TrainingRecord, trained_models
from layerwise.results.vocabulary import BUDGET, FLOPS, HELD_OUT, NULL, TOKENS, of_budget
from layerwise.runner.call import CallUnit, RoundsUnit
from layerwise.runner.study import Study
from layerwise.runner.training_runs import training_rows
from layerwise.studies.train_growth.task import GrowthTask, length_of
from layerwise.studies.train_growth.variants import CONTROLS, IMPORTANCE, UNIFORM
from layerwise.train.cost.frontier import (
    EQUAL,
    CostPoint,
    Frontier,
    Points,
    difference_rows,
    equal_rows,
    frontier_rows,
)
from layerwise.train.phases.metrics import (
    accounting_rows,
    arm_rows,
    epoch_rows,
    held_out_row,
    loss_ratio_row,
    losses_by_cost,
    null_rows,
    phase_paces,
    point,
    saving_rows,
    schedule_rows,
    seconds_of_steps,
    step_pace,
    time_saved_row,
)
from layerwise.train.recipe import GrowthVariant

Model = tuple[str | None, int | None, float | None]
"""The arm, the seed and the share of the budget of a model, as its rows have them."""


@dataclass(frozen=True, slots=True)
class FinishedArm:
    """The finished trainings of an arm: its schedule, records by seed, and folder; `ARM@SHARE` is another arm."""

    folder: str
    schedule: GrowthSchedule
    records: Mapping[int, TrainingRecord]

    @property
    def arm(self) -> str:
        return length_of(self.folder)[0]

    @property
    def share(self) -> float | None:
        return length_of(self.folder)[1]

    @property
    def first(self) -> TrainingRecord:
        """The training that rows lay the phases over: that of the first seed; others differ where chance decides."""
        return self.records[min(self.records)]

    @property
    def paces(self) -> dict[str, float]:
        return phase_paces(list(self.records.values()), self.schedule)


def finished_arms(folder: Path) -> dict[str, FinishedArm]:
    records: dict[str, dict[int, TrainingRecord]] = {}
    for model in trained_models(folder):
        record = TrainingRecord.read(model)
        if record is not None and record.recipe.get("variant") == GrowthVariant.NAME:
            records.setdefault(record.arm, {})[record.seed] = record
    return {arm: FinishedArm(arm, _schedule(next(iter(own.values()))), own) for arm, own in records.items()}


def compute_scores(
    study: Study, task: GrowthTask, finished: Mapping[str, FinishedArm]
) -> tuple[list[Score], dict[str, Points]]:
    """Return the rows of every arm by itself, and its held-out points by seed."""
    models: dict[Model, Path] = {
        (of.arm, seed, of.share): study.folder / of.folder / f"seed-{seed}" / MODEL
        for of in finished.values()
        for seed in of.records
    }

    def loss(model: Model) -> Iterator[Score]:
        arm, seed, share = model
        device = str(task.stack.device)
        yield held_out_row(models[model], task.splits, device, arm=arm, seed=seed, amount=share)

    evaluations = RoundsUnit(
        HELD_OUT,
        list(models),
        lambda row: (row.arm, row.seed, row.amount),
        lambda: loss,
        lambda model: f"{model[0]}/{model[1]}  held-out text",
    )
    measured = study.execute(evaluations)
    null = study.execute(CallUnit(NULL, lambda: null_rows(task.splits)))
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
    for seed, record in of.records.items():
        phases = {f"step_seconds {phase.name}": phase.name for phase in _schedule(record).phases}
        for row in training_rows({(of.arm, seed): record}):
            phase = phases.get(row.metric)
            metric = row.metric if phase is None else "step_seconds"
            yield replace(row, metric=metric, part=phase, condition=of_budget(of.share))


def _points(of: FinishedArm, held_out: Mapping[Model, Score], pace: float | None) -> Points:
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


def compare_variants(
    finished: Mapping[str, FinishedArm], ends: Mapping[str, Points], cost: ModelCost
) -> tuple[list[Score], list[str]]:
    """Return the rows of every variant compared with uniform and with its controls, and notes on what is not compared.

    `ends` are held-out points at the ends of trainings. A variant is compared at its cost if uniform was trained to
    several lengths, otherwise where both spent as much. Without uniform there are no rows.
    """
    if UNIFORM not in finished:
        return [], []
    plain = [ends[name] for name, of in finished.items() if of.arm == UNIFORM]
    whole = {name: ends[name] for name, of in finished.items() if of.arm != UNIFORM and of.share is None}
    shorter = {name: ends[name] for name, of in finished.items() if of.arm != UNIFORM and name not in whole}
    reference = {seed: [of[seed] for of in plain if seed in of] for seed in ends[UNIFORM]}
    if len(plain) > 1:
        rows, notes = frontier_rows(whole, reference, UNIFORM)
    else:
        rows, notes = equal_rows(whole, ends[UNIFORM], UNIFORM), []
    for row in frontier_rows(shorter, reference, UNIFORM)[0] if len(plain) > 1 else ():
        of = finished[str(row.arm)]
        rows.append(replace(row, arm=of.arm, amount=of.share))
    rows += _headline_rows(finished, ends, cost)
    own = whole.get(IMPORTANCE, {})
    for control in CONTROLS:
        other = whole.get(control, {})
        if set(own) & set(other):
            losses = [{seed: each.loss for seed, each in of.items()} for of in (own, other)]
            rows += difference_rows({IMPORTANCE: seed_difference(*losses)}, control, FLOPS)
    return rows, notes


def _headline_rows(finished: Mapping[str, FinishedArm], ends: Mapping[str, Points], cost: ModelCost) -> list[Score]:
    """Return savings, ratios of losses and time saved of the arms that share seeds with uniform.

    Arms trained to several lengths (`ARM@SHARE`) are read off their ends, others off their curves.
    """
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
    pace = step_pace(of.records.values())
    curves = {
        seed: losses_by_cost(record, of.schedule, cost, of.paces, pace or record.seconds / record.steps)
        for seed, record in of.records.items()
    }
    return {seed: curve for seed, curve in curves.items() if curve}


def _loss_ratios(
    of: FinishedArm, ends: Points, lengths: Mapping[int, Sequence[CostPoint]], whole: Points
) -> list[Score]:
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
    if abs(tokens / whole.costs["tokens"] - 1) <= EQUAL["tokens"]:
        return whole.loss
    if len({point.costs["tokens"] for point in lengths}) < 2:
        return None
    line = Frontier.of(lengths, "tokens")
    return line.at(tokens) if line.reaches(tokens) else None


def _time_saved(of: FinishedArm, uniform: FinishedArm) -> list[Score]:
    own, others = {}, {}
    for seed, record in of.records.items():
        plain = uniform.records.get(seed)
        pace, uniform_pace = step_pace([record]), None if plain is None else step_pace([plain])
        if plain is not None and pace is not None and uniform_pace is not None:
            own[seed] = seconds_of_steps(of.schedule, plain.steps, phase_paces([record], of.schedule), pace)
            others[seed] = uniform_pace * plain.steps
    return [time_saved_row(of.arm, own, others, UNIFORM)] if own else []
