"""`layerwise train robust`: train models to work in any order of their layers, or without some."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Literal

from layerwise.errors import OptionError, TrainError, near_matches
from layerwise.plan.checks import LAYER_LIMIT
from layerwise.results.training_record import RETRAINED
from layerwise.runner.arguments import (
    Count,
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
from layerwise.runner.reporter import Reporter, Silent
from layerwise.runner.result import Result
from layerwise.runner.training_options import (
    BadImages,
    HeldOut,
    TrainingData,
    drop_none,
    resolve_precision,
    trainer_arguments,
)
from layerwise.runner.verb import check_push, spell, verb
from layerwise.train.methods import (
    METHODS,
    READ_BY,
    DropSync,
    Options,
    PositionOptions,
    PredictionOptions,
    recipes,
)
from layerwise.train.precision import Precision
from layerwise.train.recipe import DEFAULTS_BY_MODEL, Recipe, Settings

Numbers = Annotated[Sequence[float], Range(above=0), Metavar("NUMBERS")]
Sizes = Annotated[Sequence[int], Range(least=1), Metavar("NUMBERS")]
Share = Annotated[float, Range(least=0, below=1)]

OTHER_TRAININGS = ("elc", "growth")
"""Training methods that have a separate command."""


@verb(
    "train robust",
    group="Training",
    examples=(
        "layershuffle --model demo-vit",
        "layershuffle,layerdrop --model MODEL --images FOLDER",
        "all,retrained-9,6,3 --model MODEL --images FOLDER",
    ),
)
def train_robust(
    model: Annotated[ModelLike, Trait.KEYWORD],
    text: TextLike = None,
    *,
    methods: Annotated[Sequence[str], Trait.POSITIONAL, Metavar("METHODS")],
    images: Annotated[str | None, Metavar("LOCATION")] = None,
    seeds: Annotated[int, Range(least=1, most=1_000)] = 3,
    epochs: float | None = None,
    learning_rate: float | None = None,
    batch_size: Count | None = None,
    push: Rare[Annotated[str | None, Metavar("ORG/NAME")]] = None,
    private: Rare[bool] = False,
    baseline: Rare[bool] = True,
    learning_rates: Rare[Numbers] = (),
    batch_sizes: Rare[Sizes] = (),
    lr_schedule: Rare[Literal["linear", "cosine", "constant"] | None] = None,
    augmentation: Rare[Literal["none", "crop", "crop+flip"] | None] = None,
    pack: Rare[bool] = False,
    new_head: Rare[bool] = False,
    drop_rate: Rare[float | None] = None,
    max_shift: Rare[Count | None] = None,
    drop_sync: Rare[DropSync] = "shared",
    position_table: Rare[Literal["per-layer", "shared"]] = "per-layer",
    position_dropout: Rare[Share] = 0.0,
    prediction_loss: Rare[Literal["sum", "mean"]] = "sum",
    prediction_token: Rare[Literal["first", "mean"]] = "first",
    validation: Rare[PathLike] = None,
    test: Rare[PathLike] = None,
    on_bad_image: Rare[BadImages] = "refuse",
    max_length: Rare[Annotated[int | None, Range(least=2)]] = None,
    limit: Rare[Count | None] = None,
    select_on: Rare[HeldOut] = "held-out",
    gradient_accumulation: Rare[Count | None] = None,
    precision: Rare[Precision | None] = None,
    compile: Rare[bool] = False,
    evals: Rare[Count | None] = None,
    set: Rare[Annotated[Names, Trait.REPEATED, Metavar("NAME=VALUE")]] = (),
    device: Rare[Device] = "auto",
    tokenizer: Rare[Location] = None,
    layers: Rare[str | None] = None,
    revision: Rare[str | None] = None,
    run: PathLike = None,
    overwrite: bool = False,
    seed: Seed = 0,
    reporter: Reporter | None = None,
) -> Result:
    """Train a model to tolerate reordered or missing layers.

    Each method is compared with the baseline over several seeds. Checkpoints are selected on one split and evaluated
    on another. The defaults are those of the LayerShuffle paper. With several --learning-rates or --batch-sizes, the
    validation loss selects the best for each method.

    Args:
        model: Hub id, folder, demo or demo-vit.
        text: Text file, a folder of them, or hf:DATASET.
        methods: Methods: layershuffle, layerdrop, all, or retrained-9,6,3 (one model per number of layers).
        images: Folder of class folders, hub dataset, or digits.
        seeds: Number of random seeds.
        epochs: Number of epochs.
        learning_rate: Peak learning rate.
        batch_size: Batch size.
        push: Hub repo id (a prefix for several models).
        private: Make the hub repository private.
        baseline: Train the baseline as well.
        learning_rates: Learning rates to try.
        batch_sizes: Batch sizes to try.
        lr_schedule: Schedule: linear, cosine or constant.
        augmentation: Augmentation: none, crop or crop+flip.
        pack: Pack short texts into full rows.
        new_head: Replace the classification head.
        drop_rate: Share of layers that LayerDrop skips.
        max_shift: Maximum number of positions that a shuffled layer moves.
        drop_sync: LayerDrop on several processes: shared, per-rank or masked.
        position_table: Position embeddings: per-layer or shared.
        position_dropout: Dropout in layershuffle-position.
        prediction_loss: Reduction of the prediction loss over layers: sum or mean.
        prediction_token: Token to classify: first, or mean of all.
        validation: Text for selecting checkpoints.
        test: Text for the reported results.
        on_bad_image: Handling of unreadable images: refuse or skip.
        max_length: Maximum length of a text in tokens.
        limit: Maximum number of images per split.
        select_on: Examples for selecting checkpoints: held-out or reported.
        gradient_accumulation: Number of forward passes per optimizer step.
        precision: Precision of the forward pass: float32, bfloat16 or float16.
        compile: Compile the blocks with torch.compile.
        evals: Number of evaluations on validation data.
        set: Hugging Face TrainingArguments to change; repeat for more.
        device: Device: auto, cpu, cuda, mps or xpu.
        tokenizer: Tokenizer, if the model does not include one.
        layers: Path of the layers, such as model.layers.
        revision: Branch, tag or commit of a hub model.
        run: Run directory (default: derived from options).
        overwrite: Discard the results of an earlier run.
        seed: Random seed.
        reporter: Where progress goes (default: the terminal or the notebook).

    Returns:
        The result with training runs, surveys and their contrasts.

    Raises:
        OptionError: If options cannot be combined, or no method uses one.
        TrainError: If a method is unknown or a setting does not fit.
        DataError: If the data does not fit the model.
    """
    names = expand_methods(methods)
    _check_methods(names)
    given = {
        "drop_rate": drop_rate is not None,
        "max_shift": max_shift is not None,
        "drop_sync": drop_sync != "shared",
        "position_table": position_table != "per-layer",
        "position_dropout": position_dropout > 0,
        "prediction_loss": prediction_loss != "sum",
        "prediction_token": prediction_token != "first",
    }
    _check_method_options(names, [option for option, is_given in given.items() if is_given])
    if evals is not None and names == ("baseline",):
        raise OptionError(
            f"{spell('evals')} has no effect on the baseline, which is validated only at the end of training. Add "
            f"another method, or omit {spell('evals')}."
        )
    _check_exclusive(learning_rate=learning_rate, learning_rates=learning_rates)
    _check_exclusive(batch_size=batch_size, batch_sizes=batch_sizes)
    check_push(push, private=private)
    arguments: dict[str, Any] = trainer_arguments(set, device=device)
    variants = (
        PositionOptions(table=position_table, dropout=float(position_dropout)),
        PredictionOptions(prediction_loss, prediction_token),
    )
    trained = dict.fromkeys((*(("baseline",) if baseline else ()), *names))

    def plan_recipes(settings: Settings, depth: int, precision: Precision | None) -> tuple[Options, tuple[Recipe, ...]]:
        given = drop_none(
            epochs=epochs,
            batch_size=batch_size,
            gradient_accumulation_steps=gradient_accumulation,
            learning_rate=learning_rate,
            schedule=lr_schedule,
            augmentation=augmentation,
            precision=precision,
            evals=evals,
            compiled=compile or None,
        )
        options = Options(replace(settings, **given), max_shift=max_shift, drop_sync=drop_sync, extensions=variants)
        options = replace(options, **drop_none(drop_rate=drop_rate))
        return options, recipes(trained, options, depth)

    plan_recipes(Settings(), LAYER_LIMIT, precision)  # check the options before loading the model
    from layerwise.measure.activations.embedding import EmbeddingOptions
    from layerwise.measure.interventions.survey import EvaluationGrid
    from layerwise.runner.opening import open_base, open_given_text
    from layerwise.runner.training_runs import read_splits
    from layerwise.studies.robustness.steps import SettingsGrid, choose_trial_splits, train_then_survey
    from layerwise.train.arguments import check_arguments

    reporter = reporter or Silent()
    check_arguments(arguments)
    resolved = resolve_precision(precision, arguments, device=device, run=to_path(run))
    reporter.log(f"loading {model}" if isinstance(model, str) else "loading the model")
    opened = open_base(model, device=device, tokenizer=tokenizer, layers=layers, revision=revision)
    stack = opened.stack
    options, planned = plan_recipes(DEFAULTS_BY_MODEL.get(stack.source.name, Settings()), stack.depth, resolved)
    path, corpus = open_given_text(text)
    held_out = to_path(validation), to_path(test)
    data = TrainingData(path, *held_out, images, on_bad_image, max_length, limit, select_on)
    read = partial(
        read_splits,
        stack=stack,
        location=opened.location,
        reporter=reporter,
        seed=seed,
        corpus=corpus,
        augmentation=options.settings.augmentation,
        check=not new_head,
        pack=pack,
    )
    splits = read(data)
    tuning = SettingsGrid.create(learning_rates, batch_sizes, options.settings)
    trial_splits = None
    if tuning is not None:
        trial_splits = choose_trial_splits(splits, lambda: read(replace(data, select_on="held-out")))
    folder = train_then_survey(
        opened,
        splits,
        planned,
        seeds=seeds,
        options=options,
        arguments=arguments,
        grid=EvaluationGrid(orders=20, kept=(), layers=False, seed=seed),
        inside=EmbeddingOptions(),
        new_head=new_head,
        tuning=tuning,
        trial_splits=trial_splits,
    )
    return Result(folder)


def _check_methods(names: Sequence[str]) -> None:
    for name in names:
        if name in OTHER_TRAININGS:
            raise TrainError(f"{name} is not a method of train robust. Run `layerwise train {name}`.")
        if name not in METHODS and not name.startswith(RETRAINED):
            known = near_matches(name, (*METHODS, *OTHER_TRAININGS))
            raise TrainError(f"unknown training method {name[:40]!r}; {known}, {RETRAINED}-K")


def _check_exclusive(**options: object) -> None:
    if all(options.values()):
        raise OptionError(f"{' and '.join(map(spell, options))} cannot be combined. Pass one of them.")


def _check_method_options(names: Sequence[str], options: Sequence[str]) -> None:
    for option in options:
        if not any(name in READ_BY[option] for name in names):
            raise OptionError(f"{spell(option)} requires one of the methods {', '.join(READ_BY[option])}.")


def expand_methods(names: Iterable[str]) -> tuple[str, ...]:
    """Return the methods without duplicates. A number N after `retrained-K` means the method `retrained-N`.

    >>> expand_methods(["layershuffle", "retrained-9", "6", "3"])
    ('layershuffle', 'retrained-9', 'retrained-6', 'retrained-3')
    """
    methods: list[str] = []
    for name in names:
        if name == "all":
            methods += METHODS
        elif name.isdecimal() and methods and methods[-1].startswith(f"{RETRAINED}-"):
            methods.append(f"{RETRAINED}-{name}")
        else:
            methods.append(name)
    return tuple(dict.fromkeys(methods))
