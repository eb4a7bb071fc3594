"""A study of growth that is ready to run: the sweep, the importance, the arms with every seed, and the rows.

RUN/pilot/ARM@RATE/seed-1000     the sweep of learning rates, on seeds of its own, 1000 and upwards
RUN/importance.yaml              the schedule by the importance that the best uniform model of the sweep has
RUN/ARM/seed-N                   the arms
RUN/uniform@1.25/seed-N          uniform at other lengths, which the arms are compared with
RUN/published@0.634/seed-N       the published schedule with its smaller budget
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from layerwise.errors import LayerwiseError, PlanError, RunError, TrainError
from layerwise.experiments.cluster.pieces import Telling
from layerwise.experiments.experiment import Inputs, Prepared
from layerwise.experiments.growth.arms import GrowthArm, arm_at_equal_cost, check_arms, length_of
from layerwise.experiments.growth.budget import check_epochs, cost_in_uniform_steps
from layerwise.experiments.growth.config import UNIFORM
from layerwise.experiments.growth.headline import headline_rows
from layerwise.experiments.growth.opening import open_task
from layerwise.experiments.growth.pieces import ArmTraining, train_arms
from layerwise.experiments.growth.rows import finished_arms, write_rows
from layerwise.experiments.growth.task import FAMILY
from layerwise.experiments.growth_study import arms as study
from layerwise.experiments.growth_study.config import GrowthStudy
from layerwise.experiments.growth_study.importance import SCHEDULE, schedule_by_importance
from layerwise.experiments.growth_study.sweep import PILOT, LearningRateSweep
from layerwise.experiments.reporter import Reporter
from layerwise.experiments.trainings import discard_trainings
from layerwise.measure.cost.frontier import Points, difference_rows, frontier_rows
from layerwise.measure.stats.seeds import seed_difference
from layerwise.measure.workers import Emit, Plain
from layerwise.results import Run
from layerwise.results.rows import Score
from layerwise.results.training_record import TrainingRecord
from layerwise.results.vocabulary import FLOPS, GROWTH, RATES
from layerwise.schedule import GrowthSchedule, flops_per_token, preset, share_of_uniform, steps_for
from layerwise.train.arguments import check_arguments
from layerwise.train.processes import is_alone, shared_recipe
from layerwise.train.recipe import Settings

STEPS = 200
"""Steps of uniform in a study of the tiny model: some 55 trainings, half an hour on one core."""

MOST_WARMUP = 0.5
"""The largest share of the steps that a sweep warms up over, unless others are named."""

FEW = 3
"""Seeds below which an interval is so wide that it says little."""


class PreparedGrowthStudy(Prepared):
    """A model, its text, the arms, and the steps of uniform training that each of them may cost.

    Raises `PlanError` and `TrainError` for what the model or the text does not allow. The schedule by importance is not
    known yet; it is taken to need the most steps that it can.
    """

    def __init__(self, config: GrowthStudy, reporter: Reporter, inputs: Inputs) -> None:
        self.config = config = replace(config, precision=config.resolved_precision(config.device, config.run))
        self.arguments = config.trainer_arguments(config.device)
        check_arguments(self.arguments)
        if not is_alone():
            raise TrainError(
                "a study is many small trainings, one after the other, on one process; start it without torchrun"
            )
        self.task = task = open_task(config, reporter, inputs)
        self.settings = replace(task.settings, **config.changes())
        self.rates = tuple(sorted(set(config.learning_rates))) or tuple(
            factor * self.settings.learning_rate for factor in study.FACTORS
        )
        own_data = config.model is not None or config.text is not None or inputs.corpus is not None
        steps = config.steps or (STEPS if config.epochs is None and not own_data else None)
        self.budget = steps or task.steps_of(1.0 if config.epochs is None else config.epochs, self.settings)
        usual = self.settings.warmup
        by_default = tuple(min(factor * usual, MOST_WARMUP) for factor in study.FACTORS) if len(self.rates) > 1 else ()
        self.warmups = tuple(sorted(set(config.warmups or by_default) - {usual}))
        self.arms, self.notes = _arms_for(config, task.pretrained)
        self.schedules = {arm: each for arm, each in study.known(task.stack.depth).items() if arm in self.arms}
        self._check_lengths()
        self.manifest = task.manifest(config.seed, self.arguments, (FAMILY, "study"))
        options = {
            "settings": self.settings.to_json(), "learning_rates": self.rates, "budget": self.budget,
            "warmups": self.warmups, "shorter": config.shorter, "max_epochs": config.max_epochs, "seed": config.seed,
            "sweep_seeds": config.sweep_seeds,
        }  # fmt: skip
        self.recipe = shared_recipe(options, self.arguments)

    def _check_lengths(self) -> None:
        """Raise `PlanError` or `TrainError` for trainings that the model or the text does not allow."""
        task, budget, config = self.task, self.budget, self.config
        seeds = range(config.seeds)
        arms = [
            arm_at_equal_cost(arm, schedule, self.settings, task, budget, seeds)
            for arm, schedule in self.schedules.items()
        ]
        check_arms(task, [*arms, *self.shortened(self.schedules, lambda _: self.settings)], config.max_epochs, None)
        length = study.lengths([self._most_steps(steps for arm in arms for steps in arm.steps.values())], budget)[-1]
        name = f"{study.at_length(length)}, the longest training,"
        check_epochs(round(length * budget), self.settings.batch_size, task.windows, config.max_epochs, name)

    def _most_steps(self, steps: Iterable[int]) -> int:
        """The most of `steps`, and of what the schedule by importance may take."""
        most = study.most_steps(self.task.cost, self.budget) if study.IMPORTANCE in self.arms else 0
        return max(*steps, most)

    def _trainings(self) -> tuple[int, float]:
        """How many trainings there will be, about, and their length together in uniform trainings."""
        known = [steps_for(schedule, self.task.cost, self.budget) for schedule in self.schedules.values()]
        lengths = study.lengths([self._most_steps(known)], self.budget, self.least_length())
        tried = len(self.rates) + len(self.warmups)
        pilots = len(study.swept(self.arms)) * tried * self.config.sweep_seeds
        seeds, shorter = self.config.seeds, len(study.shortened(self.arms))
        count = pilots + seeds * (len(self.arms) + len(lengths) + shorter)
        return count, pilots + seeds * (len(self.arms) + sum(lengths) + self.config.shorter * shorter)

    def shortened(
        self, schedules: Mapping[str, GrowthSchedule], settings_of: Callable[[str], Settings]
    ) -> tuple[GrowthArm, ...]:
        """The published schedule with its smaller budget, which is one of steps and not of operations.

        Raises `PlanError` where a phase of it would have no step.
        """
        share = self.config.shorter
        steps = max(1, round(share * self.budget))
        arms = study.shortened(schedules)
        for arm in arms:
            schedules[arm].bounds(steps)
        counts = dict.fromkeys(range(self.config.seeds), steps)
        return tuple(GrowthArm(study.at_length(share, arm), schedules[arm], settings_of(arm), counts) for arm in arms)

    def least_length(self) -> float:
        """The least share of uniform's operations that an arm spends: that of the published one's smaller budget."""
        shares = (share_of_uniform(self.schedules[arm], self.task.cost) for arm in study.shortened(self.schedules))
        return min([self.config.shorter * share for share in shares] or [study.SHORTEST])

    def describe(self) -> Iterator[str]:
        """The model, the text, the arms, and how many trainings they take."""
        yield from self.task.describe()
        count, length = self._trainings()
        seeds = self.config.seeds
        yield (
            f"{len(self.arms)} arms ({', '.join(self.arms)}), {seeds} seed{'s' * (seeds != 1)} each, for the cost of "
            f"{self.budget:,} uniform steps"
        )
        uniform = flops_per_token(preset(UNIFORM, self.task.stack.depth).phases[0], self.task.cost)
        flops = length * self.budget * self.settings.batch_size * self.task.length * uniform
        yield f"cost: about {count} trainings, together as long as {length:.0f} uniform ones, {flops:.3g} operations"
        for note in self.notes:
            yield f"note: {note}"

    def discard(self, folder: Path) -> None:
        """Remove every training, those of the sweep too, and the schedule by importance."""
        discard_trainings(folder)
        if (folder / PILOT).is_dir():
            shutil.rmtree(folder / PILOT)
        (folder / SCHEDULE).unlink(missing_ok=True)

    def carry_out(self, piece: Plain, emit: Emit) -> Plain:
        """In a worker: one training."""
        ArmTraining.of(piece).carry_out(self.task, self.arguments, Telling(emit))

    def measure(self, run: Run, reporter: Reporter) -> None:
        """Train in the order in which one thing depends on another, and compare; what is finished is not done again."""
        StudyInProgress(self, run, reporter).complete()


class StudyInProgress:
    """A study that is carried out: what is trained next depends on what was measured before."""

    def __init__(self, prepared: PreparedGrowthStudy, run: Run, reporter: Reporter) -> None:
        self.prepared = prepared
        self.run = run
        self.reporter = reporter
        self.notes = list(prepared.notes)
        self.schedules = dict(prepared.schedules)
        self.sweep = LearningRateSweep(
            prepared.task, prepared.settings, prepared.budget, prepared.config.sweep_seeds, run.folder,
            prepared.arguments, reporter, prepared._trainings()[1], prepared.spread,
        )  # fmt: skip

    def complete(self) -> None:
        """Everything, in the order in which one thing depends on another."""
        prepared, seeds = self.prepared, range(self.prepared.config.seeds)
        if len(seeds) < FEW:
            self._note(f"{len(seeds)} seed(s): intervals are over seeds, and those of fewer than {FEW} are wide")
        self._note_reinitialized_layers()
        # Neither of these waits for the other, so that workers train for both at once.
        self._tune([arm for arm in (UNIFORM, study.PUBLISHED) if arm in self.schedules])
        if study.IMPORTANCE in prepared.arms:
            self.schedules |= self._by_importance()
        self._tune([arm for arm in study.swept(self.schedules) if not self.sweep.is_swept(arm)])
        arms = self._arms()
        for each in arms:
            self._note_budget(each)
        # The longest of a seed first: what is begun last is short, and no worker waits long for the others.
        trained = sorted((*arms, *self._shortened(), *self._uniform_at_lengths(arms)), key=self._longest, reverse=True)
        trainings = [ArmTraining(arm, seed, self.run.folder, measured=True) for seed in seeds for arm in trained]
        self._train(trainings, len(trained))

    def _train(self, trainings: Sequence[ArmTraining], each_seed: int) -> None:
        """Carry the trainings out, and store the rows when every arm is trained with one more seed."""
        prepared, finished, written = self.prepared, set[int](), 0
        for number in train_arms(trainings, prepared.task, prepared.arguments, prepared.spread, self.reporter):
            finished.add(number)
            complete = written
            while complete < len(trainings) and finished.issuperset(range(complete, complete + each_seed)):
                complete += each_seed
            if complete > written:
                written = complete
                self._write_rows()

    def _tune(self, arms: Sequence[str]) -> None:
        """Sweep the learning rates of arms, and their warm-ups at the best one."""
        schedules = {arm: self.schedules[arm] for arm in arms}
        self.sweep.sweep(schedules, self.prepared.rates)
        if self.prepared.warmups:
            self.sweep.sweep_warmups(schedules, self.prepared.warmups)

    # -- before the arms ----------------------------------------------------------------------------------------

    def _note_reinitialized_layers(self) -> None:
        """Say which schedules replace trained weights by random ones."""
        for arm, schedule in self.schedules.items():
            redrawn = sorted({layer for phase in schedule.phases for layer in phase.redraw})
            if self.prepared.task.pretrained and redrawn:
                layers = ", ".join(map(str, redrawn))
                self._note(f"{arm} gives layer {layers} new random weights, in place of those that are trained")

    def _by_importance(self) -> dict[str, GrowthSchedule]:
        """The arm `importance` and those of its controls that the study has; none where no layer has an effect."""
        try:
            schedule = self._importance()
        except RunError:
            raise
        except LayerwiseError as refusal:
            self._note(f"{study.IMPORTANCE} and its controls are left out: {refusal}")
            return {}
        arms = self.prepared.arms
        schedules = study.of_importance(schedule, self.prepared.config.seed)
        if study.PERMUTED not in schedules:
            self._note(
                f"{study.IMPORTANCE} gives every layer the same role, so that it has no control that differs from it"
            )
        elif study.PERMUTED in arms:
            moved = study.exchanged(schedules[study.IMPORTANCE], schedules[study.PERMUTED])
            self._note(f"in {study.PERMUTED}, {moved} of {schedule.depth} layers play another role")
        return {arm: each for arm, each in schedules.items() if arm in arms}

    def _importance(self) -> GrowthSchedule:
        """The schedule by the importance of the sweep's best uniform model."""
        rate, model = self.sweep.best(UNIFORM), self.sweep.model_at_best(UNIFORM)
        record = TrainingRecord.read(model)
        assert record is not None, "the sweep has trained it"
        prepared = self.prepared
        schedule = schedule_by_importance(self.run, prepared.task, model, rate, prepared.config.seed, self.reporter)
        self.notes.append(
            f"the importance was measured on the uniform model of a seed of its own, trained for {record.steps:,} "
            f"steps ({record.figures['flops']:.3g} operations), by skipping every layer on text to select on; this "
            f"is not counted as a cost of the schedule {study.IMPORTANCE}, which favours it"
        )
        return schedule

    # -- the arms -----------------------------------------------------------------------------------------------

    def _arms(self) -> tuple[GrowthArm, ...]:
        prepared, seeds = self.prepared, range(self.prepared.config.seeds)
        return tuple(
            arm_at_equal_cost(
                arm, self.schedules[arm], self.sweep.settings_of(arm), prepared.task, prepared.budget, seeds
            )
            for arm in study.ARMS
            if arm in self.schedules
        )

    def _costs(self, arm: GrowthArm) -> Iterator[float]:
        """What the trainings of an arm cost, each in steps in which everything learns."""
        accumulation, cost = arm.settings.gradient_accumulation_steps, self.prepared.task.cost
        for seed, steps in arm.steps.items():
            yield cost_in_uniform_steps(arm.schedule, cost, steps, seed, accumulation)

    def _longest(self, arm: GrowthArm) -> float:
        return max(self._costs(arm))

    def _note_budget(self, arm: GrowthArm) -> None:
        """Say where so few steps cannot be made to cost what the budget is."""
        off = max(abs(each / self.prepared.budget - 1) for each in self._costs(arm))
        if off > study.TOLERANCE:
            self._note(
                f"{arm.name} ends {off:.1%} off its budget, which no number of whole steps meets; give more --steps"
            )

    def _shortened(self) -> tuple[GrowthArm, ...]:
        """The arm with a smaller budget; none, which is noted, where a phase of it would have no step."""
        try:
            return self.prepared.shortened(self.schedules, self.sweep.settings_of)
        except PlanError as refusal:
            self._note(f"no arm is trained with a smaller budget: {refusal}")
            return ()

    def _uniform_at_lengths(self, arms: Sequence[GrowthArm]) -> tuple[GrowthArm, ...]:
        """Uniform training at the lengths that the arms are compared with."""
        budget, seeds = self.prepared.budget, range(self.prepared.config.seeds)
        steps = [steps for arm in arms for steps in arm.steps.values()]
        trainings = []
        for length in study.lengths(steps, budget, self.prepared.least_length()):
            name = study.at_length(length)
            counts = dict.fromkeys(seeds, max(1, round(length * budget)))
            trainings.append(GrowthArm(name, self.schedules[UNIFORM], self.sweep.settings_of(name), counts))
        return tuple(trainings)

    # -- the rows -----------------------------------------------------------------------------------------------

    def _write_rows(self) -> None:
        """Store the rows of what is finished: after every seed, so that a study that takes days can be looked at."""
        points = write_rows(self.run, self.prepared.task, self.reporter)
        lengths = {name: length_of(name) for name in points}
        plain = {name: of for name, of in points.items() if lengths[name][0] == UNIFORM}
        others = {name: of for name, of in points.items() if name not in plain}
        arms: dict[str, Points] = {name: of for name, of in others.items() if lengths[name][1] is None}
        shorter: dict[str, Points] = {name: of for name, of in others.items() if name not in arms}
        reference = {seed: [of[seed] for of in plain.values() if seed in of] for seed in plain[UNIFORM]}
        rows, unread = frontier_rows(arms, reference, UNIFORM)
        for row in frontier_rows(shorter, reference, UNIFORM)[0]:  # tested apart: they are no arms
            arm, share = lengths[str(row.arm)]
            rows.append(replace(row, arm=arm, amount=share))
        rows += headline_rows(finished_arms(self.run.folder), points, self.prepared.task.cost)
        rows += control_rows(arms)
        self.run.store.replace_scores(GROWTH, rows)
        self.run.store.replace_scores(RATES, self.sweep.rows())
        self.run.store.replace_notes(GROWTH, [*self.notes, *unread])

    def _note(self, text: str) -> None:
        self.notes.append(text)
        self.reporter.log(f"note: {text}")


def control_rows(arms: Mapping[str, Points]) -> list[Score]:
    """`importance` against each of its controls, which spend the same operations: is it the roles of the layers?"""
    own = arms.get(study.IMPORTANCE, {})
    rows: list[Score] = []
    for control in study.CONTROLS:
        other = arms.get(control, {})
        if set(own) & set(other):
            losses = [{seed: each.loss for seed, each in of.items()} for of in (own, other)]
            rows += difference_rows({study.IMPORTANCE: seed_difference(*losses)}, control, FLOPS)
    return rows


def _arms_for(config: GrowthStudy, pretrained: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The arms, without one that a trained model cannot have, and the sentences that say so."""
    arms = config.chosen_arms()
    if not pretrained or study.STACKING not in arms:
        return arms, ()
    rest = tuple(arm for arm in arms if arm != study.STACKING)
    note = f"{study.STACKING} is left out: its layers would grow in over weights that are trained already"
    return study.ordered_arms(rest), (note,)
