"""The sweep of learning rates and warm-ups of a study of growth, on seeds of its own.

RUN/pilot/ARM@RATE/seed-1000           one training of the sweep
RUN/pilot/ARM@RATE,WARMUP/seed-1000    another, with another warm-up than the usual one
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from layerwise.experiments.growth.arms import arm_at_equal_cost
from layerwise.experiments.growth.task import GrowthTask
from layerwise.experiments.growth_study.arms import BEYOND, FIRST_SWEEP_SEED, beyond, rate_of
from layerwise.experiments.reporter import Reporter
from layerwise.experiments.sentences import duration
from layerwise.results.rows import Score
from layerwise.results.training_record import MODEL, TrainingRecord
from layerwise.schedule import GrowthSchedule
from layerwise.train.phases.metrics import WARMUP, best_rate, last_validation, means, rate_rows
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
    ) -> None:
        self._task = task
        self._settings = settings
        self._budget = budget
        self._seeds = seeds
        self._folder = run / PILOT
        self._arguments = arguments
        self._reporter = reporter
        self._expected_trainings = expected_trainings
        self._losses: dict[str, dict[float, tuple[float, ...]]] = {}
        self._warmups: dict[str, dict[float, tuple[float, ...]]] = {}

    def sweep(self, arm: str, schedule: GrowthSchedule, rates: tuple[float, ...]) -> None:
        """Train an arm at every rate with every seed of the sweep; and at further rates, while the best is at the end.

        A side that was not tuned would be no comparison.
        """
        losses = self._losses[arm] = {}
        for rate in rates:
            losses[rate] = self._tried(arm, schedule, rate)
        for _ in range(BEYOND):
            further = beyond(means(losses))
            if further is None:
                return
            losses[further] = self._tried(arm, schedule, further)

    def sweep_warmups(self, arm: str, schedule: GrowthSchedule, warmups: tuple[float, ...]) -> None:
        """Train a swept arm at its best rate with every warm-up, the usual one among them, and every seed."""
        usual = self._settings.warmup
        self._warmups[arm] = {
            warmup: self._losses[arm][self.best(arm)]
            if warmup == usual
            else self._tried(arm, schedule, self.best(arm), warmup)
            for warmup in sorted({*warmups, usual})
        }

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

    def _tried(self, arm: str, schedule: GrowthSchedule, rate: float, warmup: float | None = None) -> tuple[float, ...]:
        settings = replace(self._settings, learning_rate=rate)
        name = _name(arm, rate)
        if warmup is not None:
            settings, name = replace(settings, warmup=warmup), f"{name},{warmup:g}"
        seeds = range(FIRST_SWEEP_SEED, FIRST_SWEEP_SEED + self._seeds)
        return tuple(last_validation(self._train(name, schedule, settings, seed)) for seed in seeds)

    def _train(self, name: str, schedule: GrowthSchedule, settings: Settings, seed: int) -> TrainingRecord:
        trained = arm_at_equal_cost(name, schedule, settings, self._task, self._budget, [seed])
        first = not any(self._folder.glob(f"*/seed-*/{MODEL}"))
        start = time.perf_counter()
        record = trained.train(self._task, seed, self._folder, self._arguments, self._reporter, prefix=f"{PILOT} ")
        if first:
            seconds = self._expected_trainings * max(record.seconds, time.perf_counter() - start)
            self._reporter.log(f"at this pace the trainings of the study take about {duration(seconds)}")
        return record


def _name(arm: str, rate: float) -> str:
    return f"{arm}@{rate:g}"
