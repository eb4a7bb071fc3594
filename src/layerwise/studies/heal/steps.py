"""The steps of a healing: learning rates are swept, arms trained, models evaluated, and the best one is written."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from math import ceil
from pathlib import Path

from layerwise.checkpoint import save
from layerwise.data.splits import Splits
from layerwise.data.text.language_modelling import masked_splits_of
from layerwise.errors import DataError, PlanError
from layerwise.measure.language.evaluation_data import objective_of
from layerwise.plan import Plan
from layerwise.results.training_record import FILE, MODEL
from layerwise.runner.experiment import Inputs
from layerwise.runner.opening import base_model
from layerwise.runner.reporter import Reporter, describe_model
from layerwise.runner.steps import Completed, Outline, Steps
from layerwise.runner.training_runs import (
    TEXT_LENGTH,
    check_enough,
    describe_splits,
    discard_trainings,
    divided_documents,
    read_splits,
    split_notes,
    training_manifest,
)
from layerwise.runner.trainings import (
    FIRST_SWEEP_SEED,
    EvaluationsUnit,
    RecipeTraining,
    TrainingsUnit,
    trial,
)
from layerwise.stack import Stack
from layerwise.stack.max_length import longest_input
from layerwise.studies.heal.arms import DEMO_EPOCHS, SETTINGS, HealingArm, HealingSweep, arms_of, recipe_of
from layerwise.studies.heal.benchmarks import FOLDER, HealingBenchmarks, Outcomes, outcome_of
from layerwise.studies.heal.options import Healing
from layerwise.studies.heal.rows import Trainings, benchmark_rows, healing_rows
from layerwise.train.arguments import check_arguments
from layerwise.train.heal.learning import CONFIG, load_healed, peft
from layerwise.train.processes import shared_recipe, training_settings
from layerwise.train.recipe import Settings

ADAPTER = "adapter"
HEALING = "healing"

Evaluated = tuple[str, str, Plan, Callable[[Path], Stack]]
"""A model by its name, the folder of its training (empty for the base), its plan, and what opens it."""


DEFAULT_STEPS = 200
"""Steps of each training at most, unless `--epochs`, `--steps` or `--limit` say otherwise: there are dozens."""


def healing(config: Healing, reporter: Reporter, inputs: Inputs) -> Steps:
    """Sweep learning rates, train every arm with every seed, evaluate all, and write the best as a checkpoint.

    Raises `PlanError` for a plan of other layers, `DataError` for unsuitable or too few data, `TrainError` for a
    missing library or setting.
    """
    reporter.log(f"loading {config.model}")
    config = replace(config, precision=config.resolved_precision(config.device, config.run))
    arguments = config.trainer_arguments(config.device)
    check_arguments(arguments)
    if config.trains_adapters:
        peft()
    opened = base_model(config.model, config, inputs.stack)
    stack, plan = opened.stack, config.parsed_plan
    _check_plan(config, stack, plan)
    arms, sweep = arms_of(config, stack.depth), HealingSweep(config.learning_rates)
    filled_in = _fills_in(stack)
    splits = _splits(config, stack, opened.location, reporter, inputs, filled_in)
    check_enough(splits)
    base, settings = opened.base(), _settings(config, len(splits.train))

    def training(arm: HealingArm, seed: int, rate: float) -> RecipeTraining:
        return RecipeTraining.of(recipe_of(arm, arm.plan(plan, stack.depth, seed), settings, rate), seed)

    def trying(arm: HealingArm, rate: float) -> RecipeTraining:
        return trial(training(arm, FIRST_SWEEP_SEED, rate).recipe, rate)

    def unit(*trainings: RecipeTraining) -> TrainingsUnit:
        return TrainingsUnit(base, stack, splits, trainings, arguments)

    def trained(arm: str, seed: int) -> Callable[[Path], Stack]:
        return lambda folder: load_healed(base.open(), folder / arm / f"seed-{seed}" / MODEL)

    seeds = range(config.seeds)
    result = Trainings(
        plan=plan,
        depth=stack.depth,
        arms=arms,
        seeds=len(seeds),
        records={},
        losses=sweep.losses,
    )
    models: list[Evaluated] = [
        *((name, "", under, lambda _: stack) for name, under in result.unhealed().items()),
        *(
            (
                f"{arm.name}/{seed}",
                f"{arm.name}/seed-{seed}",
                arm.plan(plan, stack.depth, seed),
                trained(arm.name, seed),
            )
            for arm in arms
            for seed in seeds
        ),
    ]
    evaluations = EvaluationsUnit([outcome_of(*each, splits, filled_in) for each in models])
    benchmarks = HealingBenchmarks.of(config, stack, filled_in=filled_in)
    answers = [] if benchmarks is None else [EvaluationsUnit([benchmarks.evaluation(*each) for each in models])]
    swept = [arm for arm in arms if arm.is_swept and len(sweep.first_rates(arm)) > 1]
    trials = [trying(arm, rate) for arm in swept for rate in sweep.first_rates(arm)]
    likely = [training(arm, seed, sweep.first_rates(arm)[0]) for arm in arms for seed in seeds]

    def says() -> Iterator[str]:
        yield describe_model(stack)
        yield describe_splits(splits)
        yield from split_notes(splits)
        yield _plan_sentence(plan, stack.depth)
        yield (
            f"{len(arms)} arms ({', '.join(arm.name for arm in arms)}) with {config.seeds} seeds each, and at least "
            f"{len(trials)} trials of learning rates: {settings.steps(len(splits.train)):,} steps each"
        )
        if settings.steps(len(splits.train)) == DEFAULT_STEPS and config.steps is None:
            yield f"by default at most {DEFAULT_STEPS} steps; --epochs 1 reads all of the text once"
        if config.fine_tunes(stack.depth):
            yield "the plan leaves nothing out: the model is fine-tuned, and no control is trained beside it"
        if benchmarks is not None:
            yield benchmarks.describe()

    tasks, numerics = (str(plan),), training_settings(arguments)
    manifest = training_manifest(
        stack, base.weights, splits, family=HEALING, tasks=tasks, seed=config.seed, settings=numerics
    )
    content = {"settings": asdict(settings), "rates": config.learning_rates, "rank": config.rank}
    session = yield Outline(
        manifest,
        says,
        recipe=shared_recipe({**content, "arms": [arm.name for arm in arms]}, arguments),
        ahead=(evaluations, *answers, unit(*trials, *likely)),
        discard=discard_healing,
        models=lambda folder: {config.main: folder / MODEL},
        refuse=unit(*(trying(arm, sweep.first_rates(arm)[0]) for arm in swept)).refuse,
    )
    for arm in swept:
        for rate in sweep.due(arm.name, sweep.first_rates(arm)):
            (record,) = yield from unit(trying(arm, rate))
            sweep.note(arm.name, rate, record)
    wanted = [training(arm, seed, sweep.chosen(arm)) for seed in seeds for arm in arms]
    records = yield from unit(*wanted)
    by_training = {(each.recipe.arm, each.seed): record for each, record in zip(wanted, records, strict=True)}
    result = replace(result, records={(arm.name, seed): by_training[arm.name, seed] for arm in arms for seed in seeds})
    rows = healing_rows(result, Outcomes(splits, (yield from evaluations), config.seed))
    if benchmarks is not None:
        rows += benchmark_rows(result, (yield from answers[0]), benchmarks.chance)
    best = session.folder / arms[0].name / f"seed-{result.best()}"
    written = _written(plan, best, trained(arms[0].name, result.best()), session.folder)
    reporter.log(written.replace("RUN", str(session.folder)))
    return Completed(rows, {HEALING: [*split_notes(splits), written]})


def discard_healing(folder: Path) -> None:
    discard_trainings(folder)
    for path in (folder / MODEL, folder / ADAPTER, folder / FOLDER):
        shutil.rmtree(path, ignore_errors=True)


def _check_plan(config: Healing, stack: Stack, plan: Plan) -> None:
    stack.check(plan)
    is_taught = config.teacher == "self" or not all(name.endswith("-labels") for name in config.compare)
    if config.fine_tunes(stack.depth) and is_taught:
        raise PlanError(
            f"the plan {plan} leaves nothing out, and a model learns nothing from its own predictions: train on the "
            "labels, with --teacher none, and with METHOD-labels alone in --compare"
        )
    most = config.windows or 0
    if most >= stack.depth:
        raise PlanError(
            f"windows of up to {most} layers were to be skipped, and the model has {stack.depth}; write --windows "
            f"{stack.depth - 1} or less"
        )


def _settings(config: Healing, count: int) -> Settings:
    settings = replace(SETTINGS, epochs=DEMO_EPOCHS.get(config.model, SETTINGS.epochs), **config.changes())
    if config.epochs is not None:
        settings = replace(settings, epochs=config.epochs)
    most = DEFAULT_STEPS if config.text is not None and config.epochs is None and config.limit is None else None
    steps = config.steps or (most if most is not None and settings.steps(count) > most else None)
    if steps is not None:
        settings = replace(settings, epochs=steps / ceil(count / settings.batch_size))
    return settings


def _plan_sentence(plan: Plan, depth: int) -> str:
    left_out = sorted(set(range(depth)) - set(plan.layers()))
    names = f"layer{'s' * (len(left_out) != 1)} {', '.join(map(str, left_out))}"
    return f"plan {plan}: {len(plan.steps())} visits, {f'without {names}' if left_out else 'with every layer'}"


def _written(plan: Plan, training: Path, healed: Callable[[Path], Stack], folder: Path) -> str:
    if (training / MODEL / CONFIG).is_file():
        shutil.copytree(training / MODEL, folder / ADAPTER, dirs_exist_ok=True, ignore=shutil.ignore_patterns(FILE))
    seed = training.name.removeprefix("seed-")
    if not (folder / MODEL / "config.json").is_file():
        try:
            save(healed(folder), plan, folder / MODEL)
        except PlanError as error:
            return f"no RUN/{MODEL} was written: {error.reason}"
    return f"RUN/{MODEL} is the model of seed {seed}, whose validation loss is the least"


def _fills_in(stack: Stack) -> bool:
    is_text = getattr(stack.model, "main_input_name", None) == "input_ids"
    return is_text and objective_of(stack) == "masked_token"


def _splits(
    config: Healing, stack: Stack, location: str | None, reporter: Reporter, inputs: Inputs, filled_in: bool
) -> Splits:
    if not filled_in:
        return read_splits(config, stack, location, reporter, seed=config.seed, corpus=inputs.corpus)
    if config.images is not None or config.limit is not None or config.select_on == "reported":
        raise DataError(
            f"{stack.source.name} fills in tokens of text: give it --text, and neither --images nor --limit nor "
            "--select-on reported"
        )
    if stack.tokenizer is None:
        raise DataError(f"{stack.source.name} has no tokenizer beside it; give one with --tokenizer PATH")
    positions = longest_input(stack.model)
    name, division = divided_documents(config, config.seed, inputs.corpus)
    for note in division.notes:
        reporter.log(f"note: {note}")
    length = config.max_length or min(TEXT_LENGTH, positions or TEXT_LENGTH)
    return masked_splits_of(stack.tokenizer, name, division.parts, length=length, positions=positions, seed=config.seed)
