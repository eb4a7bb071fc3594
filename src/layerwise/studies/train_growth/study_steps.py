"""The steps of a study of growth: the sweep, the importance, the arms with every seed, and the rows.

RUN/pilot/ARM@RATE/seed-1000     the sweep of learning rates, on seeds of its own, 1000 and upwards
RUN/importance.yaml              the schedule by the importance that the best uniform model of the sweep has
RUN/ARM/seed-N                   the arms
RUN/uniform@1.25/seed-N          uniform at other lengths, which the arms are compared with
RUN/published@0.634/seed-N       the published schedule with its smaller budget
"""

from __future__ import annotations

import shutil
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from layerwise.errors import LayerwiseError, PlanError, RunError, TrainError
from layerwise.measure.interventions.importance import measured_importance
from layerwise.measure.language.evaluation_data import tokenize
from layerwise.measure.stats.seeds import seed_difference
from layerwise.measure.stats.verdicts import VerdictCriterion
from layerwise.plan.schedule import GrowthSchedule
from layerwise.plan.schedule.allocation import MIN_EFFECT, Importance, allocation
from layerwise.results import Score
from layerwise.results.training_record import TrainingRecord
from layerwise.results.vocabulary import FLOPS, GROWTH
from layerwise.runner.call import ExpectedWork, MeasureUnit
from layerwise.runner.experiment import Inputs
from layerwise.runner.reporter import Reporter
from layerwise.runner.steps import Completed, Outline, Steps, Unit, UnitSession
from layerwise.runner.training_runs import discard_trainings
from layerwise.stack import load
from layerwise.studies.train_growth import study_arms as study
from layerwise.studies.train_growth.options import UNIFORM
from layerwise.studies.train_growth.schedule_file import read_schedule, write_schedule
from layerwise.studies.train_growth.steps import finished_arms, headline_rows, training_scores
from layerwise.studies.train_growth.study_arms import IMPORTANCE
from layerwise.studies.train_growth.study_design import PILOT, LearningRateSweep, StudyDesign
from layerwise.studies.train_growth.study_options import GrowthStudy
from layerwise.studies.train_growth.task import FAMILY, GrowthArm, GrowthTask, cost_in_uniform_steps, open_task
from layerwise.train.cost.frontier import Points, difference_rows, frontier_rows
from layerwise.train.processes import is_alone

FEW = 3
"""Seeds below which an interval is so wide that it says little."""

Studied = Generator[Unit[Any], Any, Completed]


def growth_study(config: GrowthStudy, reporter: Reporter, inputs: Inputs) -> Steps:
    """Train the arms in order of dependency and compare them; raises `PlanError` and `TrainError`."""
    if not is_alone():
        raise TrainError(
            "a study is many small trainings, one after the other, on one process; start it without torchrun"
        )
    task = open_task(config, reporter, inputs)
    own_data = config.model is not None or config.text is not None or inputs.corpus is not None
    design = StudyDesign.of(config, task, own_data)
    design.check()
    session = yield Outline(
        task.manifest(config.seed, (FAMILY, "study")),
        design.says,
        recipe=task.shared_recipe(
            learning_rates=design.rates,
            budget=design.budget,
            warmups=design.warmups,
            shorter=config.shorter,
            max_epochs=config.max_epochs,
            seed=config.seed,
            sweep_seeds=config.sweep_seeds,
        ),
        ahead=(ExpectedWork(design.remaining),),
        discard=discard_study,
    )
    return (yield from _Study(design, session).steps())


def discard_study(folder: Path) -> None:
    discard_trainings(folder)
    shutil.rmtree(folder / PILOT, ignore_errors=True)
    (folder / SCHEDULE).unlink(missing_ok=True)


class _Study:
    def __init__(self, design: StudyDesign, session: UnitSession) -> None:
        self.design = design
        self.session = session
        self.notes = list(design.notes)
        self.schedules = dict(design.schedules)
        self.sweep = LearningRateSweep(design)

    def steps(self) -> Studied:
        design, seeds = self.design, self.design.seeds
        if len(seeds) < FEW:
            self._note(f"{len(seeds)} seed(s): intervals are over seeds, and those of fewer than {FEW} are wide")
        self._note_reinitialized_layers()
        yield from self._tune([arm for arm in (UNIFORM, study.PUBLISHED) if arm in self.schedules])
        if study.IMPORTANCE in design.arms:
            self.schedules |= yield from self._by_importance()
        yield from self._tune([arm for arm in study.swept(self.schedules) if arm not in self.sweep.losses])
        settings_of, known = self.sweep.settings_of, self.schedules
        arms = [design.arm(arm, known[arm], settings_of(arm)) for arm in study.ARMS if arm in known]
        for each in arms:
            self._note_budget(each)
        # The longest of a seed first: what is begun last is short, and no worker waits long for the others.
        lengths = (*self._shortened(), *design.uniform_at_lengths(arms, settings_of))
        trained = sorted((*arms, *lengths), key=lambda arm: max(self._costs(arm)), reverse=True)
        for seed in seeds:
            yield from design.task.unit([arm.training(design.task, seed) for arm in trained])
            rows = yield from self._rows()
            if seed != seeds[-1]:  # a study that takes days can be looked at after every seed
                yield from MeasureUnit(lambda session, rows=rows: rows.store(session.store))  # type: ignore[misc]
        return rows

    def _tune(self, arms: Sequence[str]) -> Generator[Unit[Any], Any, None]:
        yield from self.sweep.tune({arm: self.schedules[arm] for arm in arms})

    # -- before the arms ----------------------------------------------------------------------------------------

    def _note_reinitialized_layers(self) -> None:
        for arm, schedule in self.schedules.items():
            redrawn = sorted({layer for phase in schedule.phases for layer in phase.redraw})
            if self.design.task.pretrained and redrawn:
                layers = ", ".join(map(str, redrawn))
                self._note(f"{arm} gives layer {layers} new random weights, in place of those that are trained")

    def _by_importance(self) -> Generator[Unit[Any], Any, dict[str, GrowthSchedule]]:
        config, rate, task = self.design.config, self.sweep.best(UNIFORM), self.design.task
        model = self.sweep.model_at_best(self.session.folder, UNIFORM)
        record = TrainingRecord.read(model)
        assert record is not None, "the sweep has trained it"
        try:
            schedule = yield from MeasureUnit(
                partial(schedule_by_importance, task=task, model=model, rate=rate, seed=config.seed)
            )
        except RunError:
            raise
        except LayerwiseError as refusal:
            self._note(f"{study.IMPORTANCE} and its controls are left out: {refusal}")
            return {}
        self.notes.append(
            f"the importance was measured on the uniform model of a seed of its own, trained for {record.steps:,} "
            f"steps ({record.figures['flops']:.3g} operations), by skipping every layer on text to select on; this "
            f"is not counted as a cost of the schedule {study.IMPORTANCE}, which favours it"
        )
        schedules = study.of_importance(schedule, config.seed)
        if study.PERMUTED not in schedules:
            self._note(
                f"{study.IMPORTANCE} gives every layer the same role, so that it has no control that differs from it"
            )
        elif study.PERMUTED in self.design.arms:
            moved = study.exchanged(schedules[study.IMPORTANCE], schedules[study.PERMUTED])
            self._note(f"in {study.PERMUTED}, {moved} of {schedule.depth} layers play another role")
        return {arm: each for arm, each in schedules.items() if arm in self.design.arms}

    # -- the arms -----------------------------------------------------------------------------------------------

    def _costs(self, arm: GrowthArm) -> list[float]:
        passes, cost = arm.settings.gradient_accumulation_steps, self.design.task.cost
        return [cost_in_uniform_steps(arm.schedule, cost, steps, seed, passes) for seed, steps in arm.steps.items()]

    def _note_budget(self, arm: GrowthArm) -> None:
        off = max(abs(each / self.design.budget - 1) for each in self._costs(arm))
        if off > study.TOLERANCE:
            self._note(
                f"{arm.name} ends {off:.1%} off its budget, which no number of whole steps meets; give more --steps"
            )

    def _shortened(self) -> tuple[GrowthArm, ...]:
        try:
            return self.design.shortened(self.schedules, self.sweep.settings_of)
        except PlanError as refusal:
            self._note(f"no arm is trained with a smaller budget: {refusal}")
            return ()

    # -- the rows -----------------------------------------------------------------------------------------------

    def _rows(self) -> Studied:
        finished = finished_arms(self.session.folder)
        rows, points = yield from training_scores(self.design.task, self.session.folder, finished)
        plain = [points[name] for name, of in finished.items() if of.arm == UNIFORM]
        arms = {name: points[name] for name, of in finished.items() if of.arm != UNIFORM and of.share is None}
        shorter = {name: points[name] for name, of in finished.items() if of.arm != UNIFORM and name not in arms}
        reference = {seed: [of[seed] for of in plain if seed in of] for seed in points[UNIFORM]}
        compared, unread = frontier_rows(arms, reference, UNIFORM)
        rows += compared
        for row in frontier_rows(shorter, reference, UNIFORM)[0]:  # tested apart: they are no arms
            of = finished[str(row.arm)]
            rows.append(replace(row, arm=of.arm, amount=of.share))
        rows += headline_rows(finished, points, self.design.task.cost)
        rows += control_rows(arms)
        return Completed([*rows, *self.sweep.rows()], {GROWTH: [*self.notes, *unread]})

    def _note(self, text: str) -> None:
        self.notes.append(text)
        self.session.reporter.log(f"note: {text}")


def control_rows(arms: Mapping[str, Points]) -> list[Score]:
    own = arms.get(study.IMPORTANCE, {})
    rows: list[Score] = []
    for control in study.CONTROLS:
        other = arms.get(control, {})
        if set(own) & set(other):
            losses = [{seed: each.loss for seed, each in of.items()} for of in (own, other)]
            rows += difference_rows({study.IMPORTANCE: seed_difference(*losses)}, control, FLOPS)
    return rows


SCHEDULE = "importance.yaml"

AT = "learning_rate"
"""The metric of the row that says which model of the sweep the importance was measured on."""

IMPORTANCE_TOKENS = 50_000
"""Tokens of the validation documents that importance is measured on, at most, spread over them."""


def schedule_by_importance(
    session: UnitSession, task: GrowthTask, model: Path, rate: float, seed: int
) -> GrowthSchedule:
    """Return the schedule by layer importance of `model`, trained with learning rate `rate`; a stored one is read.

    Raises `PlanError` if no layer has an effect.
    """
    path = session.folder / SCHEDULE
    known = {row.value for row in session.store.scores(IMPORTANCE, metric=AT)}
    if not path.is_file() or known != {rate}:  # resumed with other rates, another model may be the best
        stack = load(model, device=str(task.stack.device))
        text = tokenize(stack, task.validation_corpus, length=task.length, tokens=IMPORTANCE_TOKENS, seed=seed)
        session.reporter.log(f"measuring the importance of {stack.depth} layers on {text.tokens:,} tokens")
        importance = measured_importance(stack, text, seed=seed, rule=VerdictCriterion(margin=MIN_EFFECT))
        schedule = allocation(importance, min_effect=MIN_EFFECT).schedule(IMPORTANCE)
        path.unlink(missing_ok=True)
        session.store.replace_scores(IMPORTANCE, importance_rows(importance, rate))
        write_schedule(schedule, path)
    return read_schedule(path)


def importance_rows(importance: Sequence[Importance], rate: float) -> list[Score]:
    """What skipping each layer costs, in nats per token, with the interval that holds for all of them together; and the
    learning `rate` of the model that it was measured on."""
    return [
        Score(IMPORTANCE, AT, rate),
        *(
            Score(IMPORTANCE, "skip", each.value, each.low, each.high, layer=layer)
            for layer, each in enumerate(importance)
        ),
    ]
