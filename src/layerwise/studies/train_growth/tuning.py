"""Learning rates and warm-ups of growth trainings, chosen by validation loss.

RUN/pilot/VARIANT@RATE/seed-1000 is a trial, RUN/pilot/VARIANT@RATE,WARMUP/seed-1000 one with another warm-up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from layerwise.errors import MeasureError
from layerwise.plan.schedule import GrowthSchedule
from layerwise.results import Score
from layerwise.results.training_record import TrainingRecord
from layerwise.results.vocabulary import LEARNING_RATE, RATES, WARMUP
from layerwise.runner.study import Study
from layerwise.runner.trainings import BEYOND, FIRST_SWEEP_SEED, RecipeTraining, best_rate, beyond, trial
from layerwise.studies.train_growth.design import GrowthDesign
from layerwise.studies.train_growth.variants import choose_setting
from layerwise.train.recipe import Settings

Tried = tuple[float, ...]
"""A rate, or a rate and a warm-up."""


class LearningRateSweep:
    """The validation losses of variants at several learning rates and, at the best one, several warm-ups."""

    def __init__(self, design: GrowthDesign, study: Study) -> None:
        self.design = design
        self.study = study
        self.losses: dict[str, dict[float, float]] = {}
        self.warmups: dict[str, dict[float, float]] = {}

    def tune(self, schedules: Mapping[str, GrowthSchedule]) -> None:
        self.losses |= {name: {} for name in schedules}
        due = dict.fromkeys(schedules, self.design.rates)
        for _ in range(1 + BEYOND):
            tried: list[tuple[str, Tried]] = [(name, (rate,)) for name, rates in due.items() for rate in rates]
            for (name, (rate,)), loss in self._train(tried, schedules).items():
                self.losses[name][rate] = loss
            further = {name: beyond(self.losses[name]) for name in due}
            due = {name: (rate,) for name, rate in further.items() if rate is not None}
            if not due:
                break
        if self.design.warmups:
            tried = [(name, (self.best(name), warmup)) for name in schedules for warmup in self.design.warmups]
            losses = self._train(tried, schedules)
            for name in schedules:
                known = {self.design.task.settings.warmup: self.losses[name][self.best(name)]}
                known |= {warmup: loss for (of, (_, warmup)), loss in losses.items() if of == name}
                self.warmups[name] = dict(sorted(known.items()))

    def best(self, name: str) -> float:
        return best_rate(self.losses[name])

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
        return self._trial(name, (self.best(name),), schedule)

    def _train(
        self, tried: Sequence[tuple[str, Tried]], schedules: Mapping[str, GrowthSchedule]
    ) -> dict[tuple[str, Tried], float]:
        trials = [self._trial(name, settings, schedules[name]) for name, settings in tried]
        records = self.study.execute(self.design.task.unit(trials))
        return dict(zip(tried, map(_last_validation, records), strict=True))

    def _trial(self, name: str, tried: Tried, schedule: GrowthSchedule) -> RecipeTraining:
        rate, *warmup = tried
        settings = replace(self.design.task.settings, learning_rate=rate)
        if warmup:
            settings = replace(settings, warmup=warmup[0])
        arm = self.design.arm(name, schedule, settings, [FIRST_SWEEP_SEED])
        return trial(arm.recipe(self.design.task, FIRST_SWEEP_SEED), *tried)


def _last_validation(record: TrainingRecord) -> float:
    if not record.validation_losses:
        raise MeasureError(f"{record.arm}/{record.seed} was never validated, so its learning rate cannot be judged")
    return record.validation_losses[-1]
