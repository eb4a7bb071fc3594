"""`layerwise train growth`: training in phases, compared with uniform training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from layerwise.errors import OptionError
from layerwise.runner.arguments import (
    Device,
    Location,
    Metavar,
    Names,
    OptionalModel,
    PathLike,
    Range,
    Rare,
    Seed,
    Settings,
    TextLike,
    to_path,
)
from layerwise.runner.reporter import Reporter, Silent
from layerwise.runner.result import Result
from layerwise.runner.training_options import TrainingData, drop_none, resolve_precision, trainer_arguments
from layerwise.runner.verb import check_push, spell, verb
from layerwise.studies.train_growth.variants import IMPORTANCE, PUBLISHED, UNIFORM, read_variants
from layerwise.train.precision import Precision

Numbers = Annotated[Sequence[float], Range(above=0), Metavar("NUMBERS")]
Share = Annotated[float | None, Range(above=0, below=1), Metavar("SHARE")]


@verb(
    "train growth",
    group="Training",
    examples=(
        "--schedules stacking --seeds 3",
        "--schedules importance,permuted --frontier",
    ),
)
def growth(
    model: OptionalModel = None,
    text: TextLike = None,
    *,
    schedules: Names = (PUBLISHED,),
    seeds: Annotated[int, Range(least=1, most=1_000)] = 1,
    steps: Annotated[int | None, Range(least=1)] = None,
    epochs: Annotated[float | None, Range(above=0)] = None,
    learning_rates: Numbers = (),
    batch_size: Annotated[int | None, Range(least=1)] = None,
    size: Literal["tiny", "published"] = "tiny",
    frontier: bool = False,
    shorter: Rare[Share] = None,
    warmups: Rare[Annotated[Sequence[float], Range(least=0, below=1), Metavar("NUMBERS")]] = (),
    baseline: Rare[bool] = True,
    match: Rare[Literal["flops", "tokens"]] = "flops",
    importance: Rare[Annotated[PathLike, Metavar("RUN")]] = None,
    from_scratch: Rare[bool] = False,
    max_length: Rare[Annotated[int | None, Range(least=2)]] = None,
    max_epochs: Rare[Annotated[float, Range(above=0)]] = 2.0,
    validation: Rare[PathLike] = None,
    test: Rare[PathLike] = None,
    gradient_accumulation: Rare[Annotated[int | None, Range(least=1)]] = None,
    precision: Rare[Precision | None] = None,
    compile: Rare[bool] = False,
    evals: Rare[Annotated[int | None, Range(least=1)]] = None,
    set: Settings = (),
    push: Rare[str | None] = None,
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
    """Train a model in phases and compare it with uniform training.

    Every schedule uses as many FLOPs as uniform training in --steps steps. By default, a tiny, randomly initialized
    model is trained on the documentation in Python's standard library. To resume an interrupted run, run the same
    command again.

    Args:
        model: Hub id, folder, or config.json (random weights).
        text: Text file, a folder of them, or hf:DATASET.
        schedules: Schedules: uniform, published, freezing, stacking, lisa, ramp, importance, permuted, reversed,
            random, or YAML files.
        seeds: Number of random seeds.
        steps: Number of optimizer steps.
        epochs: Number of epochs.
        learning_rates: Learning rates to try.
        batch_size: Batch size.
        size: Size of the model, if none is given.
        frontier: Also run uniform training at other lengths.
        shorter: Also train the first schedule for this share of the steps.
        warmups: Warm-up lengths to try, as shares of the steps.
        baseline: Train the baseline as well.
        match: Train every schedule for equal FLOPs or tokens.
        importance: Run of `diagnose` (default: measure importance).
        from_scratch: Replace trained weights with random ones.
        max_length: Maximum length of a text in tokens.
        max_epochs: Maximum number of passes over the text.
        validation: Text for selecting checkpoints.
        test: Text for the reported results.
        gradient_accumulation: Number of forward passes per optimizer step.
        precision: Precision of the forward pass: float32, bfloat16 or float16.
        compile: Compile the blocks with torch.compile.
        evals: Number of evaluations on validation data.
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
        The rows: losses and costs by `variant` and `seed`, and of measure `growth` the differences between variants.

    Raises:
        OptionError: If options contradict each other.
        PlanError: If a schedule is unknown or does not fit the model.
        TrainError: If a text would be read more often than `max_epochs`.
    """
    arguments = trainer_arguments(set, device=device)
    variants = read_variants(schedules, has_importance_run=importance is not None)
    if steps is not None and epochs is not None:
        raise OptionError(f"{spell('steps')} and {spell('epochs')} cannot be combined. Pass one of them.")
    if model is not None and size != "tiny":
        raise OptionError(f"{spell('size')} and {spell('model')} cannot be combined. Pass one of them.")
    check_push(push, private=private)
    if not baseline and (frontier or shorter is not None):
        option = spell("frontier" if frontier else "shorter")
        raise OptionError(f"{option} requires uniform training for comparison. Train the baseline as well.")
    if not baseline and importance is None and IMPORTANCE in variants:
        raise OptionError(
            f"without a baseline, the schedule {IMPORTANCE} requires {spell('importance')} RUN, the run of a diagnosis."
        )
    if baseline:
        variants = {UNIFORM: None, **variants}
    from layerwise.runner.study import RunDescription, start_run
    from layerwise.studies.train_growth import steps as growth_steps
    from layerwise.studies.train_growth.design import GrowthDesign
    from layerwise.studies.train_growth.task import open_task

    task = open_task(
        model,
        text,
        reporter or Silent(),
        data=TrainingData(validation=to_path(validation), test=to_path(test), max_length=max_length),
        size=size,
        from_scratch=from_scratch,
        seed=seed,
        loading={"device": device, "tokenizer": tokenizer, "layers": layers, "revision": revision},
        arguments=arguments,
        settings=drop_none(
            compiled=compile or None,
            batch_size=batch_size,
            gradient_accumulation_steps=gradient_accumulation,
            precision=resolve_precision(precision, arguments, device=device, run=to_path(run)),
            evals=evals,
            learning_rate=learning_rates[0] if len(learning_rates) == 1 else None,
        ),
    )
    design = GrowthDesign(
        task,
        names=tuple(variants),
        budget=steps or task.steps_of(1.0 if epochs is None else epochs),
        seeds=range(seeds),
        rates=tuple(sorted(dict.fromkeys(learning_rates))) or (task.settings.learning_rate,),
        warmups=tuple(sorted(dict.fromkeys(warmups))),
        match=match,
        frontier=frontier,
        shorter=shorter,
        measures_importance=IMPORTANCE in variants and importance is None,
    )
    known, notes = growth_steps.build_known(design, variants, to_path(importance), seed)
    design.check(known, max_epochs)
    certain = design.certain_trainings(known)
    described = RunDescription(
        manifest=task.manifest(seed),
        lines=list(design.describe(known)),
        tasks=[certain],
        recipe=design.recipe(),
        refuse=lambda folder: None if design.tuned() else certain.refuse(folder),
        discard=growth_steps.discard,
        models=design.find_models,
        on_several_processes=not design.measures_importance,
    )
    with start_run(described) as study:
        sweep = growth_steps.LearningRateSweep(design, study)
        sweep.tune({name: known[name] for name in design.tuned() if name in known})
        if design.measures_importance:
            measured, more_notes = growth_steps.measure_importance(study, design, sweep, known[UNIFORM], seed)
            sweep.tune({name: measured[name] for name in design.tuned() if name in measured})
            known, notes = known | measured, notes + more_notes
        for note in notes:
            study.reporter.log(f"note: {note}")
        study.execute(design.trainings(design.list_variants(known, sweep.settings_of)))
        growth_steps.write_results(study, task, sweep, notes)
    return Result(study.folder)
