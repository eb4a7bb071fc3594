"""`layerwise train METHODS`: models that bear other layer orders, missing layers, and layers of other models."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from layerwise.cli import knobs
from layerwise.cli.options import (
    MODEL,
    Device,
    Images,
    Layers,
    Limit,
    OwnRun,
    Quiet,
    Revision,
    TestText,
    Tokenizer,
    TrainingLength,
    TrainingText,
    Unreadable,
    ValidationText,
    names,
)
from layerwise.cli.screen import errors, write
from layerwise.errors import TrainError, near_matches
from layerwise.plan.limits import LAYER_LIMIT
from layerwise.results.pedigree import RETRAINED
from layerwise.train.recipe import METHODS, Options, PositionOptions, PredictionOptions, Settings, recipe

APART = ("elc", "growth")
"""Ways of training that have a command of their own; a test compares them."""


def refine(
    methods: Annotated[
        str, typer.Argument(metavar="METHODS", help=f"Some of {', '.join(METHODS)}, retrained-K, by commas; or all.")
    ],
    model: Annotated[str, typer.Option(metavar="MODEL", help="A hub id, a folder, demo-vit or demo.")],
    images: Images = None,
    text: TrainingText = None,
    validation: ValidationText = None,
    test: TestText = None,
    unreadable: Unreadable = "refuse",
    limit: Limit = None,
    length: TrainingLength = None,
    seeds: knobs.Seeds = 3,
    epochs: knobs.Epochs = None,
    batch: knobs.Batch = None,
    accumulation: knobs.Accumulation = None,
    learning_rate: knobs.LearningRate = None,
    schedule: knobs.Schedule = None,
    augmentation: knobs.Augmentation = None,
    precision: knobs.Precision = None,
    checks: knobs.Checks = None,
    drop: knobs.Drop = None,
    reach: knobs.Reach = None,
    skipping: knobs.Skipping = "together",
    position_table: knobs.PositionTable = "per-layer",
    prediction_loss: knobs.PredictionLoss = "sum",
    prediction_reads: knobs.PredictionReads = "first",
    extra: knobs.Extra = None,
    alone: knobs.Alone = False,
    new_head: Annotated[
        bool, typer.Option("--new-head", help="Draw its classification head anew.", rich_help_panel=MODEL)
    ] = False,
    run: OwnRun = None,
    fresh: knobs.FreshModels = False,
    seed: knobs.SplitSeed = 0,
    quiet: Quiet = False,
    tokenizer: Tokenizer = None,
    layers: Layers = None,
    device: Device = "auto",
    revision: Revision = None,
) -> None:
    """Train a model to bear any order of its layers, to do without some of them, or to read learned mixes.

    Each method is trained beside the baseline, with several seeds, validated on one split and judged on another.
    Killed or stopped, the same command goes on where it was. Without options the settings are the LayerShuffle paper's.

    [dim]layerwise train layershuffle --model demo-vit[/]

    [dim]layerwise train layershuffle,layerdrop --model google/vit-base-patch16-224 --images FOLDER[/]

    [dim]torchrun --nproc-per-node 8 -m layerwise train all --model MODEL --images FOLDER[/]
    """
    given = knobs.given(
        epochs=epochs, batch=batch, accumulation=accumulation, learning_rate=learning_rate, schedule=schedule,
        augmentation=augmentation, precision=precision, checks=checks, drop=drop, reach=reach,
    )  # fmt: skip
    wanted = _wanted(methods, alone)
    # What no training can be is refused before anything is loaded.
    tried = replace(Settings(), **given)
    for method in wanted:
        recipe(method, tried, LAYER_LIMIT)
    arguments = knobs.trainer_arguments(extra, device)
    if not quiet:
        write(errors, f"loading {model}")
    from layerwise.cli.course import Course, hold
    from layerwise.cli.lesson import base_of, settings_for
    from layerwise.cli.materials import Material
    from layerwise.measure.survey import Questions
    from layerwise.train.arguments import check_arguments

    check_arguments(arguments)
    settings = replace(settings_for(model), **given)
    opener = base_of(model, tokenizer, layers, device, revision)
    splits = Material(images, text, unreadable, limit, length, seed, validation, test).splits(
        opener.stack, opener.place, augmentation=settings.augmentation, check=not new_head, quiet=quiet
    )
    base = opener.base(splits.classes if new_head else None)
    options = Options(
        settings, PositionOptions(table=position_table), PredictionOptions(prediction_loss, prediction_reads), skipping
    )
    course = Course(base, splits, options, options.recipes(wanted, opener.stack.depth), seeds, arguments)
    hold(course, opener.stack, Questions(orders=20, kept=(), layers=False, seed=seed), run, fresh=fresh, quiet=quiet)


def _wanted(methods: str, alone: bool) -> tuple[str, ...]:
    """The methods that were named, and the baseline beside them.

    Raises `TrainError` for what is trained by a command of its own, and for what is nearly the name of one.
    """
    asked = tuple(METHODS) if methods == "all" else names(methods)
    for name in asked:
        if name in APART:
            raise TrainError(
                f"{name} has a command of its own, and takes no other method beside it: layerwise train {name}"
            )
        if name not in METHODS and not name.startswith(RETRAINED):
            known = near_matches(name, (*METHODS, *APART))
            raise TrainError(f"there is no way of training called {name[:40]!r}; {known}, {RETRAINED}-K")
    return tuple(dict.fromkeys((*(() if alone else ("baseline",)), *asked)))
