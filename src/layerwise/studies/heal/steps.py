"""The steps of `layerwise heal`: tune learning rates, train the variants, evaluate them, and save the best model."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any

from layerwise.checkpoint import save
from layerwise.data.splits import Splits
from layerwise.data.text.corpus import Corpus
from layerwise.data.text.language_modeling import build_masked_splits
from layerwise.errors import DataError, PlanError
from layerwise.measure.language.evaluation_data import find_objective
from layerwise.plan import Plan
from layerwise.results.training_record import FILE, MODEL, TrainingRecord
from layerwise.runner.opening import BaseModel
from layerwise.runner.reporter import Reporter, describe_model
from layerwise.runner.study import RunDescription
from layerwise.runner.tasks import Study
from layerwise.runner.training_options import TrainingData
from layerwise.runner.training_runs import (
    TEXT_LENGTH,
    describe_split_limits,
    describe_splits,
    discard_trainings,
    make_training_manifest,
    read_splits,
    split_documents,
)
from layerwise.runner.trainings import (
    FIRST_SWEEP_SEED,
    EvaluationsTask,
    RecipeTraining,
    TrainingsTask,
    make_trial,
    select_rate,
    sweep_rates,
)
from layerwise.stack import Stack
from layerwise.stack.max_length import longest_input
from layerwise.studies.heal.benchmarks import FOLDER, HealingBenchmarks, evaluate_test
from layerwise.studies.heal.variants import DEMO_EPOCHS, SETTINGS, Healing, HealingVariant
from layerwise.train.heal.learning import CONFIG, import_peft, load_healed
from layerwise.train.heal.options import HealingOptions, healing_recipe
from layerwise.train.processes import shared_recipe, training_settings
from layerwise.train.recipe import Settings
from layerwise.train.training import Base

ADAPTER = "adapter"
HEALING = "healing"

Losses = Mapping[str, Mapping[float, float]]
"""Validation loss of every variant at every learning rate tried."""

Evaluated = tuple[str, str, Plan, Callable[[Path], Stack]]
"""A model: its name, the folder of its training run (empty for the base model), its plan, and a function to load it."""

MAX_DEFAULT_STEPS = 200
"""Maximum number of steps of a training run if neither `--epochs`, `--steps` nor `--limit` is given."""


@dataclass(frozen=True)
class HealingWork:
    """The training runs of `layerwise heal`; `rates` replaces the default learning rates of each method."""

    base: Base
    stack: Stack
    splits: Splits
    settings: Settings
    healing: Healing
    arguments: Mapping[str, Any]
    rates: tuple[float, ...]

    @property
    def swept(self) -> list[HealingVariant]:
        return [
            variant
            for variant in self.healing.variants
            if variant.rate_of == variant.name and len(variant.list_rates(self.rates)) > 1
        ]

    def plan_training(self, variant: HealingVariant, seed: int, rate: float) -> RecipeTraining:
        plan, settings = self.healing.choose_plan(variant, seed), replace(self.settings, learning_rate=rate)
        return RecipeTraining.of(healing_recipe(variant.name, settings, plan, variant.options), seed)

    def plan_trial(self, variant: HealingVariant, rate: float) -> RecipeTraining:
        return make_trial(self.plan_training(variant, FIRST_SWEEP_SEED, rate).recipe, rate)

    def make_task(self, trainings: Iterable[RecipeTraining]) -> TrainingsTask:
        return TrainingsTask(self.base, self.splits, tuple(trainings), self.arguments)

    def open_trained(self, folder: Path, variant: str, seed: int) -> Stack:
        return load_healed(self.base.open(), folder / variant / f"seed-{seed}" / MODEL)

    def list_models(self) -> list[Evaluated]:
        trained = [
            (
                f"{variant.name}/{seed}",
                f"{variant.name}/seed-{seed}",
                self.healing.choose_plan(variant, seed),
                partial(self.open_trained, variant=variant.name, seed=seed),
            )
            for variant in self.healing.variants
            for seed in range(self.healing.seeds)
        ]
        bases = self.healing.list_untrained().items()
        return [*((name, "", under, lambda _: self.stack) for name, under in bases), *trained]


def train_all(study: Study, work: HealingWork) -> tuple[dict[tuple[str, int], TrainingRecord], Losses]:
    """Train every variant with every seed at its best learning rate. Returns the records and the trial losses."""

    def loss_at(rate: float, variant: HealingVariant) -> float:
        (record,) = study.execute(work.make_task([work.plan_trial(variant, rate)]))
        return min(record.validation_losses)

    losses = {
        variant.name: sweep_rates(variant.list_rates(work.rates), partial(loss_at, variant=variant))
        for variant in work.swept
    }
    rates = {
        variant.name: select_rate(losses[variant.rate_of])
        if variant.rate_of in losses
        else variant.list_rates(work.rates)[0]
        for variant in work.healing.variants
    }
    variants, seeds = work.healing.variants, range(work.healing.seeds)
    trainings = [work.plan_training(each, seed, rates[each.name]) for seed in seeds for each in variants]
    trained = study.execute(work.make_task(trainings))
    records = {(each.recipe.variant, each.seed): record for each, record in zip(trainings, trained, strict=True)}
    return {(each.name, seed): records[each.name, seed] for each in variants for seed in seeds}, losses


def check_library(variants: Iterable[HealingOptions]) -> None:
    if any(each.method == "lora" for each in variants):
        import_peft()


def plan_evaluations(
    work: HealingWork, benchmarks: HealingBenchmarks | None
) -> tuple[EvaluationsTask, EvaluationsTask]:
    """Return the tasks that evaluate every model on test data and on benchmarks."""
    fills_in, models = fills_in_tokens(work.stack), work.list_models()
    return (
        EvaluationsTask([evaluate_test(*each, work.splits, fills_in) for each in models]),
        EvaluationsTask([] if benchmarks is None else [benchmarks.evaluate(*each) for each in models]),
    )


def describe_run(work: HealingWork, *, seed: int, rank: int) -> RunDescription:
    """Describe the training runs, without the evaluations."""
    trials = [work.plan_trial(variant, rate) for variant in work.swept for rate in variant.list_rates(work.rates)]
    variants, seeds = work.healing.variants, range(work.healing.seeds)
    likely = [
        work.plan_training(variant, each, variant.list_rates(work.rates)[0]) for variant in variants for each in seeds
    ]
    manifest = make_training_manifest(
        work.stack,
        work.base.weights,
        work.splits,
        family=HEALING,
        tasks=(str(work.healing.plan),),
        seed=seed,
        settings=training_settings(work.arguments),
    )
    content = {"settings": asdict(work.settings), "rates": work.rates, "rank": rank}
    return RunDescription(
        manifest=manifest,
        lines=describe_work(work, len(trials)),
        recipe=shared_recipe({**content, "variants": list(work.healing.names)}, work.arguments),
        tasks=[work.make_task([*trials, *likely])],
        discard=discard_healing,
        models=lambda folder: {variants[0].name: folder / MODEL},
        refuse=work.make_task(
            work.plan_trial(variant, variant.list_rates(work.rates)[0]) for variant in work.swept
        ).refuse,
        on_several_processes=True,
    )


def describe_work(work: HealingWork, trials: int) -> list[str]:
    steps, healing = work.settings.steps(len(work.splits.train)), work.healing
    return [
        describe_model(work.stack),
        describe_splits(work.splits),
        *describe_split_limits(work.splits),
        _plan_sentence(healing.plan, healing.depth),
        f"{len(healing.variants)} variants ({', '.join(healing.names)}) with {healing.seeds} seeds each, "
        f"and at least {trials} learning rate trials: {steps:,} steps each",
    ]


def discard_healing(folder: Path) -> None:
    discard_trainings(folder)
    for path in (folder / MODEL, folder / ADAPTER, folder / FOLDER):
        shutil.rmtree(path, ignore_errors=True)


def check_plan(stack: Stack, plan: Plan, *, is_taught: bool, windows: int) -> None:
    """Raise `PlanError` if the model cannot be healed under the plan."""
    stack.check(plan)
    if plan == Plan.identity(stack.depth) and not windows and is_taught:
        raise PlanError(
            f"plan {plan} skips no layer, so the model would learn from its own predictions, which changes nothing. "
            "Pass --teacher none, and METHOD-labels to --compare."
        )
    if windows >= stack.depth:
        raise PlanError(f"--windows must be at most {stack.depth - 1} for {stack.depth} layers, got {windows}.")


def choose_settings(
    model: str, count: int, changes: Mapping[str, Any], *, steps: int | None, epochs: float | None, is_bounded: bool
) -> Settings:
    """Return the settings for `count` examples. If `is_bounded`, training has at most `MAX_DEFAULT_STEPS` steps."""
    settings = replace(SETTINGS, **{"epochs": epochs or DEMO_EPOCHS.get(model, SETTINGS.epochs), **changes})
    if steps is None and is_bounded and settings.steps(count) > MAX_DEFAULT_STEPS:
        steps = MAX_DEFAULT_STEPS
    return settings if steps is None else replace(settings, epochs=steps / ceil(count / settings.batch_size))


def _plan_sentence(plan: Plan, depth: int) -> str:
    skipped = sorted(set(range(depth)) - set(plan.layers()))
    names = f"layer{'s' * (len(skipped) != 1)} {', '.join(map(str, skipped))}"
    count = len(plan.steps())
    return f"plan {plan}: {count} layer evaluations, {f'skipping {names}' if skipped else 'skipping no layer'}"


def write_best(work: HealingWork, records: Mapping[tuple[str, int], TrainingRecord], folder: Path) -> str:
    """Save the best model of the first variant, and its adapters. Returns a note for the report."""
    variant = work.healing.names[0]
    seed = min(range(work.healing.seeds), key=lambda seed: min(records[variant, seed].validation_losses))
    training = folder / variant / f"seed-{seed}" / MODEL
    if (training / CONFIG).is_file():
        shutil.copytree(training, folder / ADAPTER, dirs_exist_ok=True, ignore=shutil.ignore_patterns(FILE))
    if not (folder / MODEL / "config.json").is_file():
        try:
            save(work.open_trained(folder, variant, seed), work.healing.plan, folder / MODEL)
        except PlanError as error:
            return f"RUN/{MODEL} was not written: {error.reason}"
    return f"RUN/{MODEL} is the model of seed {seed}, which has the lowest validation loss"


def fills_in_tokens(stack: Stack) -> bool:
    is_text = getattr(stack.model, "main_input_name", None) == "input_ids"
    return is_text and find_objective(stack) == "masked_token"


def read_healing_splits(
    data: TrainingData, base: BaseModel, reporter: Reporter, *, seed: int, corpus: Corpus | None
) -> Splits:
    """Return the training, validation and test data. All evaluations of a masked language model use the same masks."""
    stack = base.stack
    if not fills_in_tokens(stack):
        return read_splits(data, stack, base.location, reporter, seed=seed, corpus=corpus)
    if data.images is not None or data.limit is not None:
        raise DataError(
            f"{stack.source.name} is a masked language model, which requires --text. Remove --images and --limit."
        )
    if stack.tokenizer is None:
        raise DataError(f"{stack.source.name} must include a tokenizer. Pass one with --tokenizer PATH.")
    positions = longest_input(stack.model)
    division = split_documents(data, seed, corpus)
    for note in division.notes:
        reporter.log(f"note: {note}")
    length = data.max_length or min(TEXT_LENGTH, positions or TEXT_LENGTH)
    return build_masked_splits(stack.tokenizer, division, length=length, positions=positions, seed=seed)
