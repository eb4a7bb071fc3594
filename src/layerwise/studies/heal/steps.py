"""The steps of a healing: learning rates are swept, arms trained, models evaluated, and the best one is written."""

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
from layerwise.data.text.language_modelling import masked_splits_of
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
    RecipeTraining,
    TrainingsTask,
    make_trial,
    select_rate,
    sweep_rates,
)
from layerwise.stack import Stack
from layerwise.stack.max_length import longest_input
from layerwise.studies.heal.arms import DEMO_EPOCHS, SETTINGS, Healing, HealingArm
from layerwise.studies.heal.benchmarks import FOLDER
from layerwise.train.heal.learning import CONFIG, load_healed
from layerwise.train.heal.options import healing_recipe
from layerwise.train.processes import shared_recipe, training_settings
from layerwise.train.recipe import Settings
from layerwise.train.training import Base

ADAPTER = "adapter"
HEALING = "healing"

Losses = Mapping[str, Mapping[float, float]]
"""The validation losses of the trials, by arm and learning rate."""

Evaluated = tuple[str, str, Plan, Callable[[Path], Stack]]
"""A model by its name, the folder of its training (empty for the base), its plan, and what opens it."""


DEFAULT_STEPS = 200
"""Steps of each training at most, unless `--epochs`, `--steps` or `--limit` say otherwise: there are dozens."""


@dataclass(frozen=True)
class HealingWork:
    """The trainings of a healing, and what they share.

    Learning rates are chosen among `rates`, or by default among those of each method.
    """

    base: Base
    stack: Stack
    splits: Splits
    settings: Settings
    healing: Healing
    arguments: Mapping[str, Any]
    rates: tuple[float, ...]

    @property
    def swept(self) -> list[HealingArm]:
        own = (arm for arm in self.healing.arms if arm.rate_of == arm.name)
        return [arm for arm in own if len(arm.first_rates(self.rates)) > 1]

    def plan_training(self, arm: HealingArm, seed: int, rate: float) -> RecipeTraining:
        plan, settings = self.healing.plan_of(arm, seed), replace(self.settings, learning_rate=rate)
        return RecipeTraining.of(healing_recipe(arm.name, settings, plan, arm.options), seed)

    def plan_trial(self, arm: HealingArm, rate: float) -> RecipeTraining:
        return make_trial(self.plan_training(arm, FIRST_SWEEP_SEED, rate).recipe, rate)

    def make_task(self, trainings: Iterable[RecipeTraining]) -> TrainingsTask:
        return TrainingsTask(self.base, self.splits, tuple(trainings), self.arguments)

    def open_trained(self, folder: Path, arm: str, seed: int) -> Stack:
        return load_healed(self.base.open(), folder / arm / f"seed-{seed}" / MODEL)

    def list_models(self) -> list[Evaluated]:
        trained = [
            (
                f"{arm.name}/{seed}",
                f"{arm.name}/seed-{seed}",
                self.healing.plan_of(arm, seed),
                partial(self.open_trained, arm=arm.name, seed=seed),
            )
            for arm in self.healing.arms
            for seed in range(self.healing.seeds)
        ]
        bases = self.healing.list_untrained().items()
        return [*((name, "", under, lambda _: self.stack) for name, under in bases), *trained]


def train_all(study: Study, work: HealingWork) -> tuple[dict[tuple[str, int], TrainingRecord], Losses]:
    """Train every arm with every seed at the best learning rate; return the records, and the losses of the trials.

    Controls take the rate of what they control.
    """

    def loss_at(rate: float, arm: HealingArm) -> float:
        (record,) = study.execute(work.make_task([work.plan_trial(arm, rate)]))
        return min(record.validation_losses)

    losses = {arm.name: sweep_rates(arm.first_rates(work.rates), partial(loss_at, arm=arm)) for arm in work.swept}
    chosen = {
        arm.name: select_rate(losses[arm.rate_of]) if arm.rate_of in losses else arm.first_rates(work.rates)[0]
        for arm in work.healing.arms
    }
    arms, seeds = work.healing.arms, range(work.healing.seeds)
    wanted = [work.plan_training(arm, seed, chosen[arm.name]) for seed in seeds for arm in arms]
    trained = study.execute(work.make_task(wanted))
    records = {(each.recipe.arm, each.seed): record for each, record in zip(wanted, trained, strict=True)}
    return {(arm.name, seed): records[arm.name, seed] for arm in arms for seed in seeds}, losses


def describe_run(work: HealingWork, *, seed: int, rank: int) -> RunDescription:
    """Describe the trainings of a run; evaluations and benchmarks are added by the caller."""
    trials = [work.plan_trial(arm, rate) for arm in work.swept for rate in arm.first_rates(work.rates)]
    arms, seeds = work.healing.arms, range(work.healing.seeds)
    likely = [work.plan_training(arm, each, arm.first_rates(work.rates)[0]) for arm in arms for each in seeds]
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
        recipe=shared_recipe({**content, "arms": list(work.healing.names)}, work.arguments),
        tasks=[work.make_task([*trials, *likely])],
        discard=discard_healing,
        models=lambda folder: {arms[0].name: folder / MODEL},
        refuse=work.make_task(work.plan_trial(arm, arm.first_rates(work.rates)[0]) for arm in work.swept).refuse,
        on_several_processes=True,
    )


def describe_work(work: HealingWork, trials: int) -> list[str]:
    steps, healing = work.settings.steps(len(work.splits.train)), work.healing
    return [
        describe_model(work.stack),
        describe_splits(work.splits),
        *describe_split_limits(work.splits),
        _plan_sentence(healing.plan, healing.depth),
        f"{len(healing.arms)} arms ({', '.join(healing.names)}) with {healing.seeds} seeds each, "
        f"and at least {trials} trials of learning rates: {steps:,} steps each",
    ]


def discard_healing(folder: Path) -> None:
    discard_trainings(folder)
    for path in (folder / MODEL, folder / ADAPTER, folder / FOLDER):
        shutil.rmtree(path, ignore_errors=True)


def check_plan(stack: Stack, plan: Plan, *, is_taught: bool, windows: int) -> None:
    """Check that a model can be healed under a plan; raises `PlanError` if there is nothing to learn."""
    stack.check(plan)
    if plan == Plan.identity(stack.depth) and not windows and is_taught:
        raise PlanError(
            f"the plan {plan} leaves nothing out, and a model learns nothing from its own predictions: train on the "
            "labels, with --teacher none, and with METHOD-labels alone in --compare"
        )
    if windows >= stack.depth:
        raise PlanError(f"--windows must be at most {stack.depth - 1} for {stack.depth} layers, got {windows}.")


def choose_settings(
    model: str, count: int, changes: Mapping[str, Any], *, steps: int | None, epochs: float | None, is_bounded: bool
) -> Settings:
    """Return the settings of trainings on `count` examples: if `is_bounded`, `DEFAULT_STEPS` at most."""
    settings = replace(SETTINGS, **{"epochs": epochs or DEMO_EPOCHS.get(model, SETTINGS.epochs), **changes})
    if steps is None and is_bounded and settings.steps(count) > DEFAULT_STEPS:
        steps = DEFAULT_STEPS
    return settings if steps is None else replace(settings, epochs=steps / ceil(count / settings.batch_size))


def _plan_sentence(plan: Plan, depth: int) -> str:
    left_out = sorted(set(range(depth)) - set(plan.layers()))
    names = f"layer{'s' * (len(left_out) != 1)} {', '.join(map(str, left_out))}"
    return f"plan {plan}: {len(plan.steps())} visits, {f'without {names}' if left_out else 'with every layer'}"


def write_best(work: HealingWork, records: Mapping[tuple[str, int], TrainingRecord], folder: Path) -> str:
    """Write the best model of the first arm as a checkpoint, and its adapters; return the sentence of the report."""
    arm = work.healing.names[0]
    seed = min(range(work.healing.seeds), key=lambda seed: min(records[arm, seed].validation_losses))
    training = folder / arm / f"seed-{seed}" / MODEL
    if (training / CONFIG).is_file():
        shutil.copytree(training, folder / ADAPTER, dirs_exist_ok=True, ignore=shutil.ignore_patterns(FILE))
    if not (folder / MODEL / "config.json").is_file():
        try:
            save(work.open_trained(folder, arm, seed), work.healing.plan, folder / MODEL)
        except PlanError as error:
            return f"no RUN/{MODEL} was written: {error.reason}"
    return f"RUN/{MODEL} is the model of seed {seed}, whose validation loss is the least"


def fills_in(stack: Stack) -> bool:
    is_text = getattr(stack.model, "main_input_name", None) == "input_ids"
    return is_text and find_objective(stack) == "masked_token"


def read_healing_splits(
    data: TrainingData, base: BaseModel, reporter: Reporter, *, seed: int, corpus: Corpus | None
) -> Splits:
    """Return the text or images that a model is healed on; the tokens of a masked model are masked once and for all."""
    stack = base.stack
    if not fills_in(stack):
        return read_splits(data, stack, base.location, reporter, seed=seed, corpus=corpus)
    if data.images is not None or data.limit is not None:
        raise DataError(f"{stack.source.name} fills in tokens of text. Pass --text, without --images and --limit.")
    if stack.tokenizer is None:
        raise DataError(f"{stack.source.name} has no tokenizer beside it; give one with --tokenizer PATH")
    positions = longest_input(stack.model)
    division = split_documents(data, seed, corpus)
    for note in division.notes:
        reporter.log(f"note: {note}")
    length = data.max_length or min(TEXT_LENGTH, positions or TEXT_LENGTH)
    return masked_splits_of(stack.tokenizer, division, length=length, positions=positions, seed=seed)
