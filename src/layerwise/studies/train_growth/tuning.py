"""Learning rates and warm-ups of growth trainings, chosen by validation loss.

RUN/pilot/VARIANT@RATE/seed-1000 is a trial, RUN/pilot/VARIANT@RATE,WARMUP/seed-1000 one with another warm-up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from layerwise.errors import MeasureError
from layerwise.plan.schedule import GrowthSchedule
from layerwise.results import Score
from layerwise.results.vocabulary import LEARNING_RATE, RATES, WARMUP
from layerwise.runner.study import Study
from layerwise.runner.trainings import FIRST_SWEEP_SEED, RecipeTraining, best_rate, sweep_rates, trial
from layerwise.studies.train_growth.design import GrowthDesign
from layerwise.studies.train_growth.variants import choose_setting
from layerwise.train.recipe import Settings


class LearningRateSweep:
    """The validation losses of variants at several learning rates and, at the best one, several warm-ups."""

    def __init__(self, design: GrowthDesign, study: Study) -> None:
        self.design = design
        self.study = study
        self.losses: dict[str, dict[float, float]] = {}
        self.warmups: dict[str, dict[float, float]] = {}

    def tune(self, schedules: Mapping[str, GrowthSchedule]) -> None:
        for name, schedule in schedules.items():
            losses = sweep_rates(self.design.rates, partial(self._loss_at, name, schedule))
            self.losses[name] = losses
            if self.design.warmups:
                best = best_rate(losses)
                tried = {warmup: self._loss_at(name, schedule, best, warmup) for warmup in self.design.warmups}
                self.warmups[name] = dict(sorted({self.design.task.settings.warmup: losses[best], **tried}.items()))

    def settings_of(self, name: str) -> Settings:
        """Return the settings of a variant: what was chosen for it or for a variant like it, or the usual ones."""
        usual = self.design.task.settings
        rates = {tuned: best_rate(losses) for tuned, losses in self.losses.items()}
        warmups = dict.fromkeys(rates, usual.warmup)
        warmups |= {tuned: best_rate(losses) for tuned, losses in self.warmups.items()}
        return replace(
            usual,
            learning_rate=choose_setting(name, rates, usual.learning_rate),
            warmup=choose_setting(name, warmups, usual.warmup),
        )

    def rows(self) -> Iterator[Score]:
        for setting, of in ((LEARNING_RATE, self.losses), (WARMUP, self.warmups)):
            for name, tried in of.items():
                if len(tried) > 1:
                    for value, loss in sorted(tried.items()):
                        columns: dict[str, Any] = {"arm": name, setting: value}
                        yield Score(RATES, "nll", loss, **columns)
                    columns = {"arm": name, setting: best_rate(tried)}
                    yield Score(RATES, "chosen", 1.0, **columns)

    def training_at_best(self, name: str, schedule: GrowthSchedule) -> RecipeTraining:
        return self._trial(name, schedule, best_rate(self.losses[name]))

    def _loss_at(self, name: str, schedule: GrowthSchedule, rate: float, *warmup: float) -> float:
        training = self._trial(name, schedule, rate, *warmup)
        (record,) = self.study.execute(self.design.task.unit([training]))
        if not record.validation_losses:
            raise MeasureError(f"{training.label} was never validated, so its learning rate cannot be judged")
        return record.validation_losses[-1]

    def _trial(self, name: str, schedule: GrowthSchedule, rate: float, *warmup: float) -> RecipeTraining:
        settings = replace(self.design.task.settings, learning_rate=rate)
        if warmup:
            settings = replace(settings, warmup=warmup[0])
        arm = self.design.arm(name, schedule, settings, [FIRST_SWEEP_SEED])
        return trial(arm.recipe(self.design.task, FIRST_SWEEP_SEED), rate, *warmup)
