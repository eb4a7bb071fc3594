"""The design of a growth study: its arms, the uniform steps that each may cost, and what its sweep tries.

RUN/pilot/ARM@RATE/seed-1000 is a training of the sweep, RUN/pilot/ARM@RATE,WARMUP/seed-1000 one with another warm-up.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from layerwise.plan.schedule import GrowthSchedule, flops_per_token, preset, share_of_uniform, steps_for
from layerwise.results import Run, Score
from layerwise.results.training_record import FILE, MODEL, TrainingRecord
from layerwise.results.vocabulary import WARMUP
from layerwise.runner.steps import Remaining, Unit
from layerwise.runner.trainings import BEYOND, FIRST_SWEEP_SEED, RecipeTraining, beyond
from layerwise.studies.train_growth import study_arms as study
from layerwise.studies.train_growth.options import UNIFORM
from layerwise.studies.train_growth.study_arms import rate_of
from layerwise.studies.train_growth.study_options import GrowthStudy
from layerwise.studies.train_growth.task import GrowthArm, GrowthTask, at_length, check_arms, check_epochs
from layerwise.train.phases.metrics import best_rate, last_validation, means, rate_rows
from layerwise.train.recipe import Settings

STEPS = 200
"""Steps of uniform in a study of the tiny model: some 55 trainings, half an hour on one core."""

MOST_WARMUP = 0.5
"""The largest share of the steps that a sweep warms up over, unless others are named."""


@dataclass(frozen=True)
class StudyDesign:
    """What is trained, as far as it is known beforehand: `arms`, known `schedules` by arm, `notes` on omissions.

    The schedule by importance is assumed to need the most steps that it can.
    """

    config: GrowthStudy
    task: GrowthTask
    budget: int
    rates: tuple[float, ...]
    warmups: tuple[float, ...]
    arms: tuple[str, ...]
    notes: tuple[str, ...] = ()
    schedules: Mapping[str, GrowthSchedule] = field(default_factory=dict)

    @classmethod
    def of(cls, config: GrowthStudy, task: GrowthTask, own_data: bool) -> StudyDesign:
        settings = task.settings
        rates = tuple(sorted(set(config.learning_rates))) or tuple(
            factor * settings.learning_rate for factor in study.FACTORS
        )
        steps = config.steps or (STEPS if config.epochs is None and not own_data else None)
        usual = settings.warmup
        by_default = tuple(min(factor * usual, MOST_WARMUP) for factor in study.FACTORS) if len(rates) > 1 else ()
        arms, notes = _arms_for(config, task.pretrained)
        return cls(
            config,
            task,
            steps or task.steps_of(1.0 if config.epochs is None else config.epochs),
            rates,
            tuple(sorted(set(config.warmups or by_default) - {usual})),
            arms,
            notes,
            {arm: each for arm, each in study.known(task.stack.depth).items() if arm in arms},
        )

    @property
    def seeds(self) -> range:
        return range(self.config.seeds)

    def check(self) -> None:
        task, budget, most = self.task, self.budget, self.config.max_epochs
        arms = [self.arm(arm, schedule, task.settings) for arm, schedule in self.schedules.items()]
        check_arms(task, [*arms, *self.shortened(self.schedules, lambda _: task.settings)], most, None)
        length = study.lengths([self._most_steps(steps for arm in arms for steps in arm.steps.values())], budget)[-1]
        name = f"{at_length(length)}, the longest training,"
        check_epochs(round(length * budget), task.settings.batch_size, task.windows, most, name)

    def arm(self, name: str, schedule: GrowthSchedule, settings: Settings) -> GrowthArm:
        return GrowthArm.at_equal_cost(name, schedule, settings, self.task, self.budget, self.seeds)

    def at_share(self, arm: str, schedule: GrowthSchedule, share: float, settings: Settings) -> GrowthArm:
        """Return an arm with a share of the budget's steps; raises `PlanError` for a phase without a step."""
        steps = max(1, round(share * self.budget))
        schedule.bounds(steps)
        return GrowthArm(at_length(share, arm), schedule, settings, dict.fromkeys(self.seeds, steps))

    def shortened(
        self, schedules: Mapping[str, GrowthSchedule], settings_of: Callable[[str], Settings]
    ) -> tuple[GrowthArm, ...]:
        """Return the published schedule at its smaller budget of steps; raises `PlanError` as `at_share` does."""
        share = self.config.shorter
        return tuple(self.at_share(arm, schedules[arm], share, settings_of(arm)) for arm in study.shortened(schedules))

    def uniform_at_lengths(
        self, arms: Iterable[GrowthArm], settings_of: Callable[[str], Settings]
    ) -> tuple[GrowthArm, ...]:
        steps = [steps for arm in arms for steps in arm.steps.values()]
        lengths = study.lengths(steps, self.budget, self._least_length())
        uniform = self.schedules[UNIFORM]
        return tuple(self.at_share(UNIFORM, uniform, each, settings_of(at_length(each))) for each in lengths)

    def says(self) -> Iterator[str]:
        task, seeds = self.task, self.config.seeds
        yield from task.says()
        count, length = self._trainings()
        yield (
            f"{len(self.arms)} arms ({', '.join(self.arms)}), {seeds} seed{'s' * (seeds != 1)} each, for the cost of "
            f"{self.budget:,} uniform steps"
        )
        flops = length * self._uniform_flops()
        yield f"cost: about {count} trainings, together as long as {length:.0f} uniform ones, {flops:.3g} operations"
        for note in self.notes:
            yield f"note: {note}"

    def remaining(self, folder: Path, run: Run | None) -> Remaining | None:
        """Count the uniform steps left in the run `folder`; None once all arms of known schedules are trained."""
        due = [
            f"{arm}/seed-{seed}"
            for arm in self.schedules
            for seed in self.seeds
            if not (folder / arm / f"seed-{seed}" / MODEL / FILE).is_file()
        ]
        if not due:
            return None
        records = (TrainingRecord.read(path.parent) for path in folder.glob(f"**/{MODEL}/{FILE}"))
        spent = sum(record.figures.get("flops", 0.0) for record in records if record is not None)
        _, length = self._trainings()
        left = max(1.0, length - spent / self._uniform_flops())
        task, uniform = self.task, self.arm(UNIFORM, self.schedules[UNIFORM], self.task.settings)
        return task.unit().remaining_steps(uniform.recipe(task, 0), left * self.budget)

    def _most_steps(self, steps: Iterable[int]) -> int:
        most = study.most_steps(self.task.cost, self.budget) if study.IMPORTANCE in self.arms else 0
        return max(*steps, most)

    def _trainings(self) -> tuple[int, float]:
        pilots = len(study.swept(self.arms)) * (len(self.rates) + len(self.warmups)) * self.config.sweep_seeds
        seeds, shorter = self.config.seeds, len(study.shortened(self.arms))
        length = pilots + seeds * (len(self.arms) + sum(self._lengths()) + self.config.shorter * shorter)
        return pilots + self._measured(), length

    def _measured(self) -> int:
        return self.config.seeds * (len(self.arms) + len(self._lengths()) + len(study.shortened(self.arms)))

    def _lengths(self) -> tuple[float, ...]:
        known = [steps_for(schedule, self.task.cost, self.budget) for schedule in self.schedules.values()]
        return study.lengths([self._most_steps(known)], self.budget, self._least_length())

    def _least_length(self) -> float:
        shares = (share_of_uniform(self.schedules[arm], self.task.cost) for arm in study.shortened(self.schedules))
        return min([self.config.shorter * share for share in shares] or [study.SHORTEST])

    def _uniform_flops(self) -> float:
        a_token = flops_per_token(preset(UNIFORM, self.task.stack.depth).phases[0], self.task.cost)
        return self.budget * self.task.settings.batch_size * self.task.length * a_token


def _arms_for(config: GrowthStudy, pretrained: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
    arms = config.chosen_arms()
    if not pretrained or study.STACKING not in arms:
        return arms, ()
    rest = tuple(arm for arm in arms if arm != study.STACKING)
    note = f"{study.STACKING} is left out: its layers would grow in over weights that are trained already"
    return study.ordered_arms(rest), (note,)


PILOT = "pilot"

Losses = dict[str, dict[float, tuple[float, ...]]]
"""By arm and by what was tried, seed by seed."""


@dataclass(frozen=True, slots=True)
class _Tried:
    arm: str
    rate: float
    warmup: float | None = None

    @property
    def name(self) -> str:
        return f"{self.arm}@{self.rate:g}" + ("" if self.warmup is None else f",{self.warmup:g}")


class LearningRateSweep:
    """The validation losses of arms at several learning rates and, at the best one, several warm-ups."""

    def __init__(self, design: StudyDesign) -> None:
        self.design = design
        self.losses: Losses = {}
        self.warmups: Losses = {}

    def tune(self, schedules: Mapping[str, GrowthSchedule]) -> Generator[Unit[Any], Any, None]:
        for arm in schedules:
            self.losses[arm] = {}
        due = dict.fromkeys(schedules, self.design.rates)
        for _ in range(1 + BEYOND):
            tried = [_Tried(arm, rate) for arm, of in due.items() for rate in of]
            for each, losses in (yield from self._trained(tried, schedules)).items():
                self.losses[each.arm][each.rate] = losses
            further = {arm: beyond(means(self.losses[arm])) for arm in due}
            due = {arm: (rate,) for arm, rate in further.items() if rate is not None}
            if not due:
                break
        if self.design.warmups:
            tried = [_Tried(arm, self.best(arm), warmup) for arm in schedules for warmup in self.design.warmups]
            losses_of = yield from self._trained(tried, schedules)
            for arm in schedules:
                known = {self.design.task.settings.warmup: self.losses[arm][self.best(arm)]}
                known |= {each.warmup: of for each, of in losses_of.items() if each.arm == arm and each.warmup}
                self.warmups[arm] = dict(sorted(known.items()))

    def best(self, arm: str) -> float:
        return best_rate(means(self.losses[arm]))

    def settings_of(self, arm: str) -> Settings:
        usual = self.design.task.settings
        rates = {swept: self.best(swept) for swept in self.losses}
        warmups = dict.fromkeys(rates, usual.warmup) | {
            swept: best_rate(means(losses)) for swept, losses in self.warmups.items()
        }
        return replace(usual, learning_rate=rate_of(arm, rates), warmup=rate_of(arm, warmups))

    def model_at_best(self, run: Path, arm: str) -> Path:
        return run / PILOT / _Tried(arm, self.best(arm)).name / f"seed-{FIRST_SWEEP_SEED}" / MODEL

    def rows(self) -> list[Score]:
        rows = [row for arm, tried in self.losses.items() for row in rate_rows(arm, tried)]
        return rows + [row for arm, tried in self.warmups.items() for row in rate_rows(arm, tried, WARMUP)]

    def _trained(
        self, tried: Sequence[_Tried], schedules: Mapping[str, GrowthSchedule]
    ) -> Generator[Unit[Any], Any, dict[_Tried, tuple[float, ...]]]:
        seeds = range(FIRST_SWEEP_SEED, FIRST_SWEEP_SEED + self.design.config.sweep_seeds)
        trainings = [self._training(each, schedules[each.arm], seed) for each in tried for seed in seeds]
        records: list[TrainingRecord] = yield from self.design.task.unit(trainings)
        losses = iter(map(last_validation, records))
        return {each: tuple(next(losses) for _ in seeds) for each in tried}

    def _training(self, tried: _Tried, schedule: GrowthSchedule, seed: int) -> RecipeTraining:
        design = self.design
        settings = replace(design.task.settings, learning_rate=tried.rate)
        if tried.warmup is not None:
            settings = replace(settings, warmup=tried.warmup)
        arm = GrowthArm.at_equal_cost(tried.name, schedule, settings, design.task, design.budget, [seed])
        return arm.training(design.task, seed, PILOT)
