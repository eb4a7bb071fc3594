"""`layerwise train`: models that bear other layer orders, missing layers, and layers of other models."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Annotated, Any

import typer

from layerwise.cli import knobs
from layerwise.cli.options import (
    MODEL,
    RUN,
    Device,
    Images,
    Layers,
    Limit,
    OwnRun,
    Quiet,
    Revision,
    Tokenizer,
    TrainingLength,
    TrainingText,
    Unreadable,
    names,
)
from layerwise.cli.screen import errors, write
from layerwise.errors import TrainError
from layerwise.plan.limits import LAYER_LIMIT
from layerwise.train.recipe import METHODS, PositionOptions, PredictionOptions, Settings, recipe


def train(
    methods: Annotated[
        str,
        typer.Argument(metavar="METHODS", help=f"Some of {', '.join(METHODS)}, retrained-K, by commas; or all."),
    ],
    model: Annotated[str, typer.Option(metavar="MODEL", help="A hub id, a folder, demo-vit or demo.")],
    images: Images = None,
    text: TrainingText = None,
    unreadable: Unreadable = "refuse",
    limit: Limit = None,
    length: TrainingLength = None,
    seeds: Annotated[
        int, typer.Option(min=1, metavar="N", help="Seeds of every method.", rich_help_panel=knobs.TRAINING)
    ] = 3,
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
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Discard the models and rows of the run folder.", rich_help_panel=RUN)
    ] = False,
    seed: Annotated[
        int, typer.Option(metavar="N", help="Draws the splits and the questions.", rich_help_panel=RUN)
    ] = 0,
    quiet: Quiet = False,
    tokenizer: Tokenizer = None,
    layers: Layers = None,
    device: Device = "auto",
    revision: Revision = None,
) -> None:
    """Train a model to bear any order of its layers, or to do without some of them.

    Each method is trained beside the baseline, with several seeds, validated on one split and judged on another.
    Killed or stopped, the same command goes on where it was. Without options the settings are the LayerShuffle paper's.

    [dim]layerwise train layershuffle --model demo-vit[/]

    [dim]layerwise train layershuffle,layerdrop --model google/vit-base-patch16-224 --images FOLDER[/]

    [dim]torchrun --nproc-per-node 8 -m layerwise train all --model MODEL --images FOLDER[/]
    """
    chosen = {
        "epochs": epochs, "batch": batch, "accumulation": accumulation, "learning_rate": learning_rate,
        "schedule": schedule, "augmentation": augmentation, "precision": precision, "checks": checks,
        "drop": drop, "reach": reach,
    }  # fmt: skip
    given: dict[str, Any] = {name: value for name, value in chosen.items() if value is not None}
    wanted = tuple(METHODS) if methods == "all" else names(methods)
    wanted = tuple(dict.fromkeys((*(() if alone else ("baseline",)), *wanted)))
    arguments = {**({"use_cpu": True} if device == "cpu" else {}), **settings_of(extra or [])}
    # What no training can be is refused before anything is loaded.
    tried = replace(Settings(), **given)
    for method in wanted:
        recipe(method, tried, LAYER_LIMIT)
    if not quiet:
        write(errors, f"loading {model}")
    from layerwise.cli.course import Course, hold
    from layerwise.cli.lesson import base_of, settings_for
    from layerwise.cli.materials import Material
    from layerwise.measure.survey import Questions

    settings = replace(settings_for(model), **given)
    opener = base_of(model, tokenizer, layers, device, revision)
    splits = Material(images, text, unreadable, limit, length, seed).splits(
        opener.stack, opener.place, augmentation=settings.augmentation, check=not new_head, quiet=quiet
    )
    base = opener.base(splits.classes if new_head else None)
    recipes = tuple(
        recipe(
            method, settings, opener.stack.depth, position=PositionOptions(table=position_table),
            prediction=PredictionOptions(total=prediction_loss, reads=prediction_reads), skipping=skipping,
        )
        for method in wanted
    )  # fmt: skip
    course = Course(base, splits, recipes, seeds, arguments)
    hold(course, opener.stack, Questions(orders=20, kept=(), layers=False, seed=seed), run, fresh=fresh, quiet=quiet)


def settings_of(texts: list[str]) -> dict[str, Any]:
    """`NAME=VALUE` texts as keyword arguments; values are read as JSON where they are JSON.

    >>> settings_of(["report_to=tensorboard", "dataloader_num_workers=4", "fsdp=full_shard"])
    {'report_to': 'tensorboard', 'dataloader_num_workers': 4, 'fsdp': 'full_shard'}
    """
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise TrainError(f"--set takes NAME=VALUE, as in --set report_to=tensorboard; found {text!r}")
        try:
            found[name] = json.loads(value)
        except json.JSONDecodeError:
            found[name] = value
    return found
