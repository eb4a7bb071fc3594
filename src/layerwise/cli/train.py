"""`layerwise train`: models that bear other layer orders, missing layers, and layers of other models."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
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
        typer.Argument(
            metavar="METHODS", help=f"Some of {', '.join(METHODS)}, retrained-K, by commas; or all; or elc alone."
        ),
    ],
    model: Annotated[
        str | None, typer.Option(metavar="MODEL", help="A hub id, a folder, demo-vit or demo; not for elc.")
    ] = None,
    images: Images = None,
    text: TrainingText = None,
    unreadable: Unreadable = "refuse",
    limit: Limit = None,
    length: TrainingLength = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Seeds of every method; by default 3, of elc 1.", rich_help_panel=knobs.TRAINING
        ),
    ] = None,
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
    size: knobs.Size = None,
    variants: knobs.Variants = None,
    initialisation: knobs.Initialisation = None,
    steps: knobs.Steps = None,
    seconds: knobs.Seconds = None,
    compiled: knobs.Compiled = False,
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
    """Train a model to bear any order of its layers, or to do without some of them; or pretrain one (elc).

    Each method is trained beside the baseline, with several seeds, validated on one split and judged on another.
    Killed or stopped, the same command goes on where it was. Without options the settings are the LayerShuffle paper's.

    [dim]layerwise train layershuffle --model demo-vit[/]

    [dim]layerwise train layershuffle,layerdrop --model google/vit-base-patch16-224 --images FOLDER[/]

    [dim]layerwise train elc --text FOLDER --size small[/]

    [dim]torchrun --nproc-per-node 8 -m layerwise train all --model MODEL --images FOLDER[/]
    """
    chosen = {
        "epochs": epochs, "batch": batch, "accumulation": accumulation, "learning_rate": learning_rate,
        "schedule": schedule, "augmentation": augmentation, "precision": precision, "checks": checks,
        "drop": drop, "reach": reach,
    }  # fmt: skip
    given: dict[str, Any] = {name: value for name, value in chosen.items() if value is not None}
    arguments = {**({"use_cpu": True} if device == "cpu" else {}), **settings_of(extra or [])}
    if knobs.ELC in names(methods):
        refined = {
            "--model": model, "--images": images, "--limit": limit, "--length": length, "--schedule": schedule,
            "--augmentation": augmentation, "--drop": drop, "--reach": reach, "--layers": layers,
            "--revision": revision, "--new-head": new_head or None,
        }  # fmt: skip
        _refuse_options(methods, refined, "a model that is pretrained begins from nothing")
        given.pop("epochs", None)
        chosen = {"steps": steps, "seconds": seconds, "compiled": compiled or None}
        given |= {name: value for name, value in chosen.items() if value is not None}
        _pretrain(
            names(methods), size or "tiny", names(variants), initialisation, given, seeds=seeds or 1, epochs=epochs,
            text=text, tokenizer=tokenizer, device=device, arguments=arguments, run=run, seed=seed, fresh=fresh,
            quiet=quiet,
        )  # fmt: skip
        return
    pretrained = {
        "--size": size, "--variants": variants, "--initialisation": initialisation, "--steps": steps,
        "--seconds": seconds, "--compile": compiled or None,
    }  # fmt: skip
    _refuse_options(methods, pretrained, f"it belongs to {knobs.ELC}")
    if model is None:
        raise TrainError(f"a model to train is needed: --model MODEL (only {knobs.ELC} begins from nothing)")
    wanted = tuple(METHODS) if methods == "all" else names(methods)
    wanted = tuple(dict.fromkeys((*(() if alone else ("baseline",)), *wanted)))
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
    course = Course(base, splits, recipes, seeds or 3, arguments)
    hold(course, opener.stack, Questions(orders=20, kept=(), layers=False, seed=seed), run, fresh=fresh, quiet=quiet)


def _refuse_options(methods: str, options: dict[str, Any], reason: str) -> None:
    """Raise `TrainError` for the options that were given and mean nothing here."""
    found = [name for name, value in options.items() if value is not None]
    if found:
        raise TrainError(f"{', '.join(found)} says nothing to a training of {methods}: {reason}; leave it out")


def _pretrain(
    methods: tuple[str, ...],
    size: str,
    variants: tuple[str, ...],
    initialisation: str | None,
    changes: dict[str, Any],
    *,
    seeds: int,
    epochs: float | None,
    text: Path | None,
    tokenizer: str | None,
    device: str,
    arguments: dict[str, Any],
    run: Path | None,
    seed: int,
    fresh: bool,
    quiet: bool,
) -> None:
    """`layerwise train elc`; what cannot be pretrained is refused before a text is read."""
    if len(methods) > 1:
        others = ", ".join(name for name in methods if name != knobs.ELC)
        raise TrainError(f"{knobs.ELC} begins from nothing and {others} refine a model: train them by two commands")
    if epochs is not None and ("steps" in changes or "seconds" in changes):
        raise TrainError("--epochs and --steps (or --seconds) both say how long to train; give one of them")
    if not quiet:
        write(errors, "loading torch")
    from layerwise.cli.pretraining import hold, programme_of, recipes_of

    recipes = recipes_of(size, variants or knobs.VARIANTS, initialisation, changes)
    programme = programme_of(
        recipes, seeds, text, tokenizer, epochs=epochs, seed=seed, device=device, arguments=arguments,
        say=lambda said: None if quiet else write(errors, said),
    )  # fmt: skip
    hold(programme, run, seed=seed, fresh=fresh, quiet=quiet)


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
