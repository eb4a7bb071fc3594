"""The steps of `layerwise train growth`: tune, measure the importance of layers, train variants, compute rows.

RUN/pilot/VARIANT@RATE/seed-1000     trials of learning rates (and of warmups: VARIANT@RATE,WARMUP)
RUN/importance.yaml                  schedule from the importance of layers, measured on the best uniform trial
RUN/VARIANT/seed-N                   trained variants
RUN/uniform@1.25/seed-N              uniform training at other lengths (--frontier)
RUN/published@0.634/seed-N           first schedule with a smaller budget (--shorter)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from layerwise.errors import LayerwiseError, MeasureError, RunError
from layerwise.measure.interventions.importance import estimate_importance
from layerwise.measure.language.evaluation_data import tokenize
from layerwise.plan.schedule import GrowthSchedule
from layerwise.plan.schedule.allocation import MIN_EFFECT, allocation
from layerwise.results import Score
from layerwise.results.training_record import MODEL
from layerwise.results.vocabulary import GROWTH, IMPORTANCE, LEARNING_RATE, RATES, WARMUP
from layerwise.runner.tasks import MeasureTask, Study
from layerwise.runner.training_runs import discard_trainings
from layerwise.runner.trainings import FIRST_SWEEP_SEED, RecipeTraining, make_trial, select_rate, sweep_rates
from layerwise.stack import load
from layerwise.studies.train_growth.design import GrowthDesign
from layerwise.studies.train_growth.importance import read_allocation
from layerwise.studies.train_growth.rows import compare_variants, compute_scores, list_finished_variants
from layerwise.studies.train_growth.schedule_file import read_schedule, write_schedule
from layerwise.studies.train_growth.task import GrowthTask
from layerwise.studies.train_growth.variants import (
    PERMUTED,
    UNIFORM,
    build_controls,
    build_schedules,
    choose_setting,
    count_exchanged,
)
from layerwise.train.recipe import Settings

SCHEDULE = "importance.yaml"

IMPORTANCE_TOKENS = 50_000
"""Maximum number of validation tokens for measuring importance."""


class LearningRateSweep:
    """Trains variants at several learning rates and, at the best rate, with several warmups. Keeps the losses."""

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
                best = select_rate(losses)
                tried = {warmup: self._loss_at(name, schedule, best, warmup) for warmup in self.design.warmups}
                self.warmups[name] = dict(sorted({self.design.task.settings.warmup: losses[best], **tried}.items()))

    def settings_of(self, name: str) -> Settings:
        """Return the settings chosen for a variant, or for the most similar tuned variant, or the default settings."""
        usual = self.design.task.settings
        rates = {tuned: select_rate(losses) for tuned, losses in self.losses.items()}
        warmups = dict.fromkeys(rates, usual.warmup)
        warmups |= {tuned: select_rate(losses) for tuned, losses in self.warmups.items()}
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
                        columns: dict[str, Any] = {"variant": name, setting: value}
                        yield Score(RATES, "nll", loss, **columns)
                    columns = {"variant": name, setting: select_rate(tried)}
                    yield Score(RATES, "chosen", 1.0, **columns)

    def training_at_best(self, name: str, schedule: GrowthSchedule) -> RecipeTraining:
        return self._trial(name, schedule, select_rate(self.losses[name]))

    def _loss_at(self, name: str, schedule: GrowthSchedule, rate: float, *warmup: float) -> float:
        training = self._trial(name, schedule, rate, *warmup)
        (record,) = self.study.execute(self.design.task.unit([training]))
        if not record.validation_losses:
            raise MeasureError(
                f"{training.label} has no validation loss, so its learning rate cannot be compared. Pass --overwrite "
                "to train it again."
            )
        return record.validation_losses[-1]

    def _trial(self, name: str, schedule: GrowthSchedule, rate: float, *warmup: float) -> RecipeTraining:
        settings = replace(self.design.task.settings, learning_rate=rate)
        if warmup:
            settings = replace(settings, warmup=warmup[0])
        variant = self.design.plan_variant(name, schedule, settings, [FIRST_SWEEP_SEED])
        return make_trial(variant.recipe(self.design.task, FIRST_SWEEP_SEED), rate, *warmup)


def build_known(
    design: GrowthDesign, variants: Mapping[str, GrowthSchedule | None], importance: Path | None, seed: int
) -> tuple[dict[str, GrowthSchedule], list[str]]:
    """Return the schedules known before training, and notes on them. `importance` is the folder of a diagnosis."""
    depth = design.task.stack.depth
    schedules = build_schedules(variants, depth)
    if importance is None:
        return schedules, []
    allocated = read_allocation(importance)[0].schedule(IMPORTANCE)
    allocated.check(depth)
    built, notes = build_named_controls(allocated, design.names, seed)
    return schedules | built, notes


def discard(folder: Path) -> None:
    discard_trainings(folder)
    (folder / SCHEDULE).unlink(missing_ok=True)


def build_named_controls(
    schedule: GrowthSchedule, names: Sequence[str], seed: int
) -> tuple[dict[str, GrowthSchedule], list[str]]:
    built, notes = build_controls(schedule, seed), []
    if PERMUTED in names and PERMUTED not in built:
        notes.append(f"{IMPORTANCE} trains all layers alike, so a permuted control would not differ from it")
    elif PERMUTED in names:
        moved = count_exchanged(built[IMPORTANCE], built[PERMUTED])
        notes.append(f"in {PERMUTED}, {moved} of {schedule.depth} layers are trained in other phases")
    return {name: built[name] for name in names if name in built}, notes


def measure_importance(
    study: Study, design: GrowthDesign, sweep: LearningRateSweep, uniform: GrowthSchedule, seed: int
) -> tuple[dict[str, GrowthSchedule], list[str]]:
    """Measure the importance of layers in the best uniform trial. Returns its schedule, the controls, and notes."""
    training = sweep.training_at_best(UNIFORM, uniform)
    measure = partial(_measure_schedule, task=design.task, training=training, seed=seed)
    try:
        schedule = study.execute(MeasureTask(measure))
    except RunError:
        raise
    except LayerwiseError as refusal:
        return {}, [f"the schedule {IMPORTANCE} and its controls are skipped: {refusal}"]
    built, notes = build_named_controls(schedule, design.names, seed)
    measured = (
        f"the importance of layers was measured on validation text after uniform training with another seed "
        f"({training.label}); this cost is not counted, which favors the schedule {IMPORTANCE}"
    )
    return built, [measured, *notes]


def write_results(study: Study, task: GrowthTask, sweep: LearningRateSweep, notes: Sequence[str]) -> None:
    finished = list_finished_variants(study.folder)
    scores, ends = compute_scores(study, task, finished)
    compared, unread = compare_variants(finished, ends, task.cost)
    noted = {GROWTH: [*notes, *unread]} if notes or unread else {}
    study.write([*scores, *compared, *sweep.rows()], noted)


def _measure_schedule(study: Study, task: GrowthTask, training: RecipeTraining, seed: int) -> GrowthSchedule:
    """Return the schedule from the importance of layers in a finished training run. The first call stores it."""
    path, rate = study.folder / SCHEDULE, training.recipe.settings.learning_rate
    measured_rates = {row.value for row in study.store.scores(IMPORTANCE, metric=LEARNING_RATE)}
    if not path.is_file() or measured_rates != {rate}:  # at other rates, another model may be best
        stack = load(study.folder / training.folder / MODEL, device=str(task.stack.device))
        text = tokenize(stack, task.validation_corpus, length=task.length, tokens=IMPORTANCE_TOKENS, seed=seed)
        study.reporter.log(f"measuring the importance of {stack.depth} layers on {text.tokens:,} tokens")
        importance = estimate_importance(stack, text, seed=seed)
        schedule = allocation(importance, min_effect=MIN_EFFECT).schedule(IMPORTANCE)
        path.unlink(missing_ok=True)
        skipped = [
            Score(IMPORTANCE, "skip", each.value, each.low, each.high, layer=layer)
            for layer, each in enumerate(importance)
        ]
        study.store.replace_scores(IMPORTANCE, [Score(IMPORTANCE, LEARNING_RATE, rate), *skipped])
        write_schedule(schedule, path)
    return read_schedule(path)
