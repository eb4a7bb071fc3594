"""`layerwise heal`: train a model to compensate for the layers that a plan skips."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

from layerwise.errors import OptionError, PlanError, TrainError, near_matches
from layerwise.plan import Plan
from layerwise.plan.checks import refuse_quantized_layers
from layerwise.runner.arguments import (
    Device,
    Location,
    Metavar,
    ModelLike,
    Names,
    PathLike,
    Range,
    Rare,
    Seed,
    TextLike,
    Trait,
    to_path,
)
from layerwise.runner.plan_choice import resolve_plan
from layerwise.runner.reporter import Reporter, Silent
from layerwise.runner.result import Result
from layerwise.runner.verb import check_push, spell, verb
from layerwise.train.heal.options import RANK, HealingOptions, HiddenLoss, Method, Teacher

CONTROLS = ("identity", "random")


@verb(
    "heal",
    group="Changing",
    examples=(
        'demo --plan "0-3 6-11" --windows 4 --tasks pairs',
        'org/name --plan "0-19 26-31" --text FOLDER --compare lora-labels',
        "demo --plan 0-11 --teacher none --method full",
    ),
)
def heal(
    model: ModelLike,
    text: TextLike = None,
    *,
    plan: Annotated[str, Trait.EMPTY, Metavar("PLAN")],
    method: Method = "lora",
    compare: Names = (),
    tasks: Names = (),
    learning_rates: Annotated[tuple[float, ...], Range(above=0), Metavar("NUMBERS")] = (),
    steps: Annotated[int | None, Range(least=1)] = None,
    epochs: Annotated[float | None, Range(above=0)] = None,
    seeds: Annotated[int, Range(least=1, most=1_000)] = 3,
    teacher: Rare[Teacher] = "self",
    hidden: Rare[HiddenLoss] = "none",
    rank: Rare[Annotated[int, Range(least=1, most=4096)]] = RANK,
    controls: Rare[Annotated[tuple[str, ...], Trait.EMPTY, Metavar("NAMES")]] = CONTROLS,
    windows: Rare[Annotated[int | None, Range(least=1, most=1_000)]] = None,
    task_folder: Rare[PathLike] = None,
    task_limit: Rare[Annotated[int | None, Range(least=1)]] = None,
    validation: Rare[PathLike] = None,
    test: Rare[PathLike] = None,
    images: Rare[Location] = None,
    limit: Rare[Annotated[int | None, Range(least=1)]] = None,
    max_length: Rare[Annotated[int | None, Range(least=2)]] = None,
    batch_size: Rare[Annotated[int | None, Range(least=1)]] = None,
    evals: Rare[Annotated[int | None, Range(least=1)]] = None,
    precision: Rare[Literal["float32", "bfloat16", "float16"] | None] = None,
    set: Rare[Annotated[tuple[str, ...], Trait.REPEATED, Metavar("NAME=VALUE")]] = (),
    push: Rare[Annotated[str | None, Metavar("ORG/NAME")]] = None,
    private: Rare[bool] = False,
    device: Rare[Device] = "auto",
    tokenizer: Rare[Location] = None,
    layers: Rare[str | None] = None,
    revision: Rare[str | None] = None,
    run: PathLike = None,
    overwrite: bool = False,
    seed: Seed = 0,
    reporter: Reporter | None = None,
) -> Result:
    """Train a model to compensate for the layers that a plan skips.

    As controls, the original model is trained on the same tokens, and random plans of the same size are healed for the
    same number of steps. The original model's gain is subtracted from the recovered share. The healed model is saved in
    RUN/model, and its adapters in RUN/adapter. To resume an interrupted run, run the same command again.

    Args:
        model: Hub id, folder, GGUF file, demo or demo-vit.
        text: Text file, a folder of them, or hf:DATASET.
        plan: Plan to heal, or run directory of a search.
        method: Weights to train (tail: last 3 layers and head).
        compare: Other variants (weights-loss) to compare with, such as lora-labels,tail-mse.
        tasks: Benchmarks from lm-eval, or pairs.
        learning_rates: Learning rates to try.
        steps: Number of optimizer steps.
        epochs: Number of epochs.
        seeds: Number of random seeds.
        teacher: Learn from the original model's predictions (self) or only from labels (none).
        hidden: Additional loss between hidden states.
        rank: Rank of the adapters.
        controls: Controls: identity (the original model) and random (random plans); empty for none.
        windows: Also heal with 1 to N middle layers skipped.
        task_folder: Folder of lm-eval task files.
        task_limit: Maximum number of questions per benchmark.
        validation: Text for selecting checkpoints.
        test: Text for the reported results.
        images: Folder of class folders, hub dataset, or digits.
        limit: Maximum number of images per split.
        max_length: Maximum length of a text in tokens.
        batch_size: Batch size.
        evals: Number of evaluations on validation data.
        precision: Precision of the forward pass: float32, bfloat16 or float16.
        set: Hugging Face TrainingArguments to change; repeat for more.
        push: Hub repo id (a prefix for several models).
        private: Make the hub repository private.
        device: Device: auto, cpu, cuda, mps or xpu.
        tokenizer: Tokenizer, if the model does not include one.
        layers: Path of the layers, such as model.layers.
        revision: Branch, tag or commit of a hub model.
        run: Run directory (default: derived from options).
        overwrite: Discard the results of an earlier run.
        seed: Random seed.
        reporter: Where progress goes (default: the terminal or the notebook).

    Returns:
        The result with the loss increase and the recovered loss of every model.

    Raises:
        PlanError: If the plan does not fit the model, or skips no layer although the teacher is the model itself.
        DataError: If the data does not fit the model, or if there is too little.
        TrainError: If a library is missing, or if a setting is invalid.

    Example:
        >>> layerwise.heal("./my-model", plan="0-13 15-29", text="texts/")  # doctest: +SKIP
    """
    healed_plan = _resolve_healed_plan(plan)
    if steps is not None and epochs is not None:
        raise OptionError(f"{spell('steps')} and {spell('epochs')} cannot be combined. Pass one of them.")
    if not tasks and (task_folder is not None or task_limit is not None):
        raise OptionError(
            f"{spell('task_folder')} and {spell('task_limit')} require {spell('tasks')}. Pass it, or remove them."
        )
    check_push(push, private=private)
    from layerwise.studies.heal.variants import Healing, build_variants

    variants = _read_variants(method, compare, teacher=teacher, hidden=hidden, rank=rank, controls=controls)
    from layerwise.runner.opening import open_base, open_given_text
    from layerwise.runner.study import start_run
    from layerwise.runner.training_options import TrainingData, drop_none, resolve_precision, trainer_arguments
    from layerwise.runner.training_runs import check_test_size, describe_split_limits
    from layerwise.studies.heal import steps as parts
    from layerwise.studies.heal.benchmarks import HealingBenchmarks, Outcomes
    from layerwise.studies.heal.rows import benchmark_rows, build_rows
    from layerwise.train.arguments import check_arguments

    reporter = reporter or Silent()
    arguments = trainer_arguments(set, device=device)
    check_arguments(arguments)
    parts.check_library(variants)
    reporter.log(f"loading {model if isinstance(model, str | Path) else 'the model'}")
    opened = open_base(model, device=device, tokenizer=tokenizer, layers=layers, revision=revision)
    stack = opened.stack
    parts.check_plan(
        stack, healed_plan, is_taught=any(each.teacher == "self" for each in variants), windows=windows or 0
    )
    path, corpus = open_given_text(text)
    held_out = to_path(validation), to_path(test)
    data = TrainingData(path, *held_out, images, max_length=max_length, limit=limit)
    splits = parts.read_healing_splits(data, opened, reporter, seed=seed, corpus=corpus)
    check_test_size(splits)
    resolved = resolve_precision(precision, arguments, device=device, run=None if run is None else Path(run))
    settings = parts.choose_settings(
        stack.source.name,
        len(splits.train),
        drop_none(batch_size=batch_size, precision=resolved, evals=evals),
        steps=steps,
        epochs=epochs,
        is_bounded=path is not None and epochs is None and limit is None,
    )
    fine_tunes = healed_plan == Plan.identity(stack.depth) and windows is None
    compared = build_variants(variants[0], compare, () if fine_tunes else controls, windows or 0)
    healing = Healing(healed_plan, stack.depth, compared, seeds)
    work = parts.HealingWork(opened.base(), stack, splits, settings, healing, arguments, tuple(learning_rates))
    benchmarks = HealingBenchmarks.open(
        tasks, to_path(task_folder), task_limit, stack, seed=seed, fills_in=parts.fills_in_tokens(stack)
    )
    evaluations, answers = parts.plan_evaluations(work, benchmarks)
    described = parts.describe_run(work, seed=seed, rank=rank)
    lines = described.lines if benchmarks is None else [*described.lines, benchmarks.describe()]
    with start_run(replace(described, lines=lines, tasks=[evaluations, answers, *described.tasks])) as study:
        records, trials = parts.train_all(study, work)
        outcomes = study.execute(evaluations)
        rows = build_rows(healing, Outcomes(splits, outcomes, seed), records, trials)
        if benchmarks is not None:
            answered = study.execute(answers)
            rows += benchmark_rows(healing, answered, benchmarks.chance)
        written = parts.write_best(work, records, study.folder)
        reporter.log(written.replace("RUN", str(study.folder)))
        study.write(rows, {parts.HEALING: [*describe_split_limits(splits), written]})
    return Result(study.folder)


def _resolve_healed_plan(plan: str) -> Plan:
    healed_plan = resolve_plan(plan)
    refuse_quantized_layers(healed_plan, "heal a model")
    if healed_plan.sources():
        raise PlanError(
            f"plan {plan} must use layers of one model only. To heal it, first write the plan as one model with "
            "`layerwise save`."
        )
    return healed_plan


def _read_variants(
    method: Method,
    compare: Sequence[str],
    *,
    teacher: Teacher,
    hidden: HiddenLoss,
    rank: int,
    controls: Sequence[str],
) -> list[HealingOptions]:
    if hidden != "none" and teacher == "none":
        raise OptionError(f"{spell('hidden')} requires {spell('teacher')} self. Pass it, or remove {spell('hidden')}.")
    if rank != RANK and not any(name.startswith("lora") for name in (method, *compare)):
        raise OptionError(f"{spell('rank')} requires {spell('method')} lora. Pass it, or remove {spell('rank')}.")
    if unknown := [name for name in controls if name not in CONTROLS]:
        raise TrainError(f"unknown control {unknown[0][:40]!r}; {near_matches(unknown[0], CONTROLS)}")
    from layerwise.studies.heal.variants import parse_variant

    main = HealingOptions(method=method, teacher=teacher, hidden=hidden, rank=rank)
    return [main, *(parse_variant(name, rank) for name in compare)]
