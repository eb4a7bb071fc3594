"""The steps of training in phases: a schedule and uniform training, each with every seed.

Rows are made from the finished trainings; held-out losses are stored per model.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from layerwise.errors import TrainError
from layerwise.plan.schedule import GrowthSchedule, ModelCost, chart, explain, preset
from layerwise.plan.schedule.cost import flops_per_token, layer_epochs, phase_shares, share_of_uniform
from layerwise.results import Score
from layerwise.results.training_record import MODEL, TrainingRecord, trained_models
from layerwise.results.vocabulary import BUDGET, HELD_OUT, NULL, TOKENS, of_budget
from layerwise.runner.call import CallUnit, ExpectedWork, RoundsUnit
from layerwise.runner.experiment import Inputs
from layerwise.runner.reporter import Reporter
from layerwise.runner.steps import Completed, Outline, Steps, Unit
from layerwise.runner.training_runs import discard_trainings, training_rows
from layerwise.runner.trainings import TrainingsUnit
from layerwise.studies.train_growth.options import UNIFORM, GrowthTraining
from layerwise.studies.train_growth.task import (
    GrowthArm,
    GrowthTask,
    check_arms,
    check_epochs,
    check_initial_weights,
    folder_name,
    length_of,
    open_task,
    recorded_steps,
)
from layerwise.train.cost.frontier import EQUAL, CostPoint, Frontier, Points, equal_rows
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
from layerwise.train.phases.step_time import relative_step_times, steps_that_take
from layerwise.train.processes import is_alone
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


def training_scores(
    task: GrowthTask, folder: Path, finished: Mapping[str, FinishedArm]
) -> Generator[Unit[Any], Any, tuple[list[Score], dict[str, Points]]]:
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
        HELD_OUT,
        list(models),
        lambda row: (row.arm, row.seed, row.amount),
        lambda: loss,
        lambda model: f"{model[0]}/{model[1]}  held-out text",
    )
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


def headline_rows(finished: Mapping[str, FinishedArm], ends: Mapping[str, Points], cost: ModelCost) -> list[Score]:
    """Return the rows of `layerwise.train.phases.metrics` for arms that share seeds with uniform.

    `ends` are held-out points at the ends of trainings. Arms trained to several lengths (`ARM@SHARE`) are read off
    their ends, others off their curves. Without uniform there are none.
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


_WIDTH = 60


def growth(config: GrowthTraining, reporter: Reporter, inputs: Inputs) -> Steps:
    """Train all arms seed by seed, and compare them with uniform at equal cost (default: one pass over the text).

    Raises `PlanError` for a schedule that does not fit the model, `TrainError` for a text read too often, and what
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
        task.manifest(config.seed),
        lambda: _says(config, task, schedule, budget, arms.of(None)),
        recipe=task.shared_recipe(budget=budget, match=config.match),
        ahead=(ExpectedWork(lambda folder, run: unit(folder).remaining(folder, run)),),
        refuse=lambda folder: check_arms(task, arms.of(folder), config.max_epochs, folder),
        discard=discard_trainings,
        models=lambda folder: {each.label: folder / each.folder / MODEL for each in unit(folder).trainings},
    )
    yield from unit(session.folder)
    finished = finished_arms(session.folder)
    rows, ends = yield from training_scores(task, session.folder, finished)
    if UNIFORM in ends:
        others = {arm: of for arm, of in ends.items() if arm != UNIFORM}
        rows += [*equal_rows(others, ends[UNIFORM], UNIFORM), *headline_rows(finished, ends, task.cost)]
    return Completed(rows)


class _Arms:
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
        relative = relative_step_times(task.base, task.splits, self.schedule, task.cost, task.settings, task.arguments)
        return steps_that_take(self.schedule, relative, self.budget)


def _says(
    config: GrowthTraining, task: GrowthTask, schedule: GrowthSchedule, budget: int, arms: tuple[GrowthArm, ...]
) -> Iterator[str]:
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
