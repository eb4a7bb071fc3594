"""The sweep of learning rates and warm-ups of a study of growth, on seeds of its own.

RUN/pilot/ARM@RATE/seed-1000           one training of the sweep
RUN/pilot/ARM@RATE,WARMUP/seed-1000    another, with another warm-up than the usual one
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from layerwise.experiments.growth.arms import arm_at_equal_cost
from layerwise.experiments.growth.pieces import ArmTraining, train_arms
from layerwise.experiments.growth.task import GrowthTask
from layerwise.experiments.growth_study.arms import BEYOND, FIRST_SWEEP_SEED, beyond, rate_of
from layerwise.experiments.reporter import Reporter
from layerwise.experiments.sentences import duration
from layerwise.measure.workers import Spread
from layerwise.results.rows import Score
from layerwise.results.training_record import MODEL, TrainingRecord
from layerwise.results.vocabulary import WARMUP
from layerwise.schedule import GrowthSchedule
from layerwise.train.phases.metrics import best_rate, last_validation, means, rate_rows
from layerwise.train.recipe import Settings

PILOT = "pilot"
"""The folder of the sweep in that of the run."""


class LearningRateSweep:
    """The validation losses of arms at several learning rates, trained into the folder of a run as they are needed.

    `expected_trainings` is the length of the whole study in uniform trainings, which the first one of the sweep turns
    into a time.
    """

    def __init__(
        self,
        task: GrowthTask,
        settings: Settings,
        budget: int,
        seeds: int,
        run: Path,
        arguments: Mapping[str, Any],
        reporter: Reporter,
        expected_trainings: float,
        spread: Spread,
    ) -> None:
        self._task = task
        self._settings = settings
        self._budget = budget
        self._seeds = seeds
        self._folder = run / PILOT
        self._arguments = arguments
        self._reporter = reporter
        self._expected_trainings = expected_trainings
        self._spread = spread
        self._losses: dict[str, dict[float, tuple[float, ...]]] = {}
        self._warmups: dict[str, dict[float, tuple[float, ...]]] = {}

    def sweep(self, schedules: Mapping[str, GrowthSchedule], rates: tuple[float, ...]) -> None:
        """Train arms at every rate with every seed of the sweep; and at further rates, while the best is at the end.

        A side that was not tuned would be no comparison.
        """
        for arm in schedules:
            self._losses[arm] = {}
        due = dict.fromkeys(schedules, rates)
        for _ in range(1 + BEYOND):
            tried = [_Tried(arm, rate) for arm, of in due.items() for rate in of]
            for each, losses in zip(tried, self._trained(tried, schedules), strict=True):
                self._losses[each.arm][each.rate] = losses
            further = {arm: beyond(means(self._losses[arm])) for arm in due}
            due = {arm: (rate,) for arm, rate in further.items() if rate is not None}
            if not due:
                return

    def sweep_warmups(self, schedules: Mapping[str, GrowthSchedule], warmups: tuple[float, ...]) -> None:
        """Train swept arms at their best rate with every warm-up, the usual one among them, and every seed."""
        usual = self._settings.warmup
        others = [warmup for warmup in sorted({*warmups, usual}) if warmup != usual]
        tried = [_Tried(arm, self.best(arm), warmup) for arm in schedules for warmup in others]
        losses = dict(zip(tried, self._trained(tried, schedules), strict=True))
        for arm in schedules:
            known = {each.warmup: of for each, of in losses.items() if each.arm == arm and each.warmup is not None}
            known[usual] = self._losses[arm][self.best(arm)]
            self._warmups[arm] = {warmup: known[warmup] for warmup in sorted(known)}

    def is_swept(self, arm: str) -> bool:
        """Whether an arm was swept."""
        return arm in self._losses

    def best(self, arm: str) -> float:
        """The best learning rate of a swept arm."""
        return best_rate(means(self._losses[arm]))

    def settings_of(self, arm: str) -> Settings:
        """The settings of an arm: its own best learning rate and warm-up, or those of its side."""
        rates = {swept: self.best(swept) for swept in self._losses}
        warmups = dict.fromkeys(rates, self._settings.warmup) | {
            swept: best_rate(means(losses)) for swept, losses in self._warmups.items()
        }
        return replace(self._settings, learning_rate=rate_of(arm, rates), warmup=rate_of(arm, warmups))

    def model_at_best(self, arm: str) -> Path:
        """The model of an arm's best learning rate and the first seed of the sweep."""
        return self._folder / _name(arm, self.best(arm)) / f"seed-{FIRST_SWEEP_SEED}" / MODEL

    def rows(self) -> list[Score]:
        """The losses at every rate and every warm-up, and which were chosen."""
        rows = [row for arm, tried in self._losses.items() for row in rate_rows(arm, tried)]
        return rows + [row for arm, tried in self._warmups.items() for row in rate_rows(arm, tried, WARMUP)]

    def _trained(self, tried: Sequence[_Tried], schedules: Mapping[str, GrowthSchedule]) -> list[tuple[float, ...]]:
        """The last validation losses of every trial, seed by seed; what is finished is not trained again."""
        seeds = range(FIRST_SWEEP_SEED, FIRST_SWEEP_SEED + self._seeds)
        trainings = [self._training(each, schedules[each.arm], seed) for each in tried for seed in seeds]
        first = not any(self._folder.glob(f"*/seed-*/{MODEL}"))
        start = time.perf_counter()
        for number in train_arms(trainings, self._task, self._arguments, self._spread, self._reporter):
            if first:
                first = False
                record = self._record(trainings[number])
                taken = record.seconds if self._spread.is_here else 0.0
                taken = max(taken, time.perf_counter() - start)
                seconds = self._expected_trainings * taken / self._spread.workers.count
                self._reporter.log(f"at this pace the trainings of the study take about {duration(seconds)}")
        losses = [last_validation(self._record(each)) for each in trainings]
        return [tuple(losses[first : first + len(seeds)]) for first in range(0, len(losses), len(seeds))]

    def _training(self, tried: _Tried, schedule: GrowthSchedule, seed: int) -> ArmTraining:
        settings = replace(self._settings, learning_rate=tried.rate)
        if tried.warmup is not None:
            settings = replace(settings, warmup=tried.warmup)
        arm = arm_at_equal_cost(tried.name, schedule, settings, self._task, self._budget, [seed])
        return ArmTraining(arm, seed, self._folder, f"{PILOT} ")

    def _record(self, training: ArmTraining) -> TrainingRecord:
        record = TrainingRecord.read(training.folder / training.arm.name / f"seed-{training.seed}" / MODEL)
        assert record is not None, "it is trained"
        return record


@dataclass(frozen=True, slots=True)
class _Tried:
    """An arm at a learning rate; with another warm-up than the usual one, where there is one."""

    arm: str
    rate: float
    warmup: float | None = None

    @property
    def name(self) -> str:
        """The name of its trainings."""
        return _name(self.arm, self.rate) + ("" if self.warmup is None else f",{self.warmup:g}")


def _name(arm: str, rate: float) -> str:
    return f"{arm}@{rate:g}"
