"""The sweep of learning rates and warm-ups of a study of growth, on seeds of its own.

RUN/pilot/ARM@RATE/seed-1000           one training of the sweep
RUN/pilot/ARM@RATE,WARMUP/seed-1000    another, with another warm-up than the usual one
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from layerwise.experiments.engines.steps import Unit
from layerwise.experiments.engines.trainings import RecipeTraining
from layerwise.experiments.growth.arms import GrowthArm
from layerwise.experiments.growth_study.arms import BEYOND, FIRST_SWEEP_SEED, beyond, rate_of
from layerwise.experiments.growth_study.design import StudyDesign
from layerwise.results.rows import Score
from layerwise.results.training_record import MODEL, TrainingRecord
from layerwise.results.vocabulary import WARMUP
from layerwise.schedule import GrowthSchedule
from layerwise.train.phases.metrics import best_rate, last_validation, means, rate_rows
from layerwise.train.recipe import Settings

PILOT = "pilot"
"""The folder of the sweep in that of the run."""

Losses = dict[str, dict[float, tuple[float, ...]]]
"""By arm and by what was tried, seed by seed."""


@dataclass(frozen=True, slots=True)
class _Tried:
    """An arm at a learning rate; with another warm-up than the usual one, where there is one."""

    arm: str
    rate: float
    warmup: float | None = None

    @property
    def name(self) -> str:
        """The name of its trainings."""
        return f"{self.arm}@{self.rate:g}" + ("" if self.warmup is None else f",{self.warmup:g}")


class LearningRateSweep:
    """The validation losses of arms at several learning rates and, at the best one, several warm-ups."""

    def __init__(self, design: StudyDesign) -> None:
        self.design = design
        self.losses: Losses = {}
        self.warmups: Losses = {}

    def tune(self, schedules: Mapping[str, GrowthSchedule]) -> Generator[Unit[Any], Any, None]:
        """Train arms at every rate with every seed of the sweep; and at further rates, while the best is at the end.

        A side that was not tuned would be no comparison. Then at the best rate with every warm-up.
        """
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
        """The best learning rate of a swept arm."""
        return best_rate(means(self.losses[arm]))

    def settings_of(self, arm: str) -> Settings:
        """The settings of an arm: its own best learning rate and warm-up, or those of its side."""
        usual = self.design.task.settings
        rates = {swept: self.best(swept) for swept in self.losses}
        warmups = dict.fromkeys(rates, usual.warmup) | {
            swept: best_rate(means(losses)) for swept, losses in self.warmups.items()
        }
        return replace(usual, learning_rate=rate_of(arm, rates), warmup=rate_of(arm, warmups))

    def model_at_best(self, run: Path, arm: str) -> Path:
        """The model of an arm's best learning rate and the first seed of the sweep."""
        return run / PILOT / _Tried(arm, self.best(arm)).name / f"seed-{FIRST_SWEEP_SEED}" / MODEL

    def rows(self) -> list[Score]:
        """The losses at every rate and every warm-up, and which were chosen."""
        rows = [row for arm, tried in self.losses.items() for row in rate_rows(arm, tried)]
        return rows + [row for arm, tried in self.warmups.items() for row in rate_rows(arm, tried, WARMUP)]

    def _trained(
        self, tried: Sequence[_Tried], schedules: Mapping[str, GrowthSchedule]
    ) -> Generator[Unit[Any], Any, dict[_Tried, tuple[float, ...]]]:
        """The last validation losses of every trial, seed by seed."""
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
