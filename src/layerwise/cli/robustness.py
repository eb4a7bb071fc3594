"""`layerwise robustness`: what a model survives, or every model of a course: the tables and figures of the paper."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from layerwise.cli.options import (
    RUN,
    SEED,
    Device,
    Dtype,
    Fresh,
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
)
from layerwise.cli.screen import errors, write
from layerwise.errors import RunError

ASKED = "What is asked"


def robustness(
    model: Annotated[
        str, typer.Argument(metavar="RUN_OR_MODEL", help="A run of `layerwise train`, a hub id, a folder, demo-vit.")
    ],
    images: Images = None,
    text: TrainingText = None,
    validation: ValidationText = None,
    test: TestText = None,
    unreadable: Unreadable = "refuse",
    limit: Limit = None,
    length: TrainingLength = None,
    orders: Annotated[
        int,
        typer.Option(
            min=1, max=100_000, metavar="N", help="Fixed orders, each over all examples.", rich_help_panel=ASKED
        ),
    ] = 100,
    draws: Annotated[
        int, typer.Option(min=1, metavar="N", help="Fresh orders a condition, at least.", rich_help_panel=ASKED)
    ] = 16,
    seeds: Annotated[
        int, typer.Option(min=1, max=1_000, metavar="N", help="Seeds of demo-vit's methods.", rich_help_panel=ASKED)
    ] = 3,
    run: OwnRun = None,
    fresh: Fresh = False,
    seed: Annotated[int, typer.Option(**SEED, metavar="N", help="Draws orders and subsets.", rich_help_panel=RUN)] = 0,
    quiet: Quiet = False,
    tokenizer: Tokenizer = None,
    layers: Layers = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
    revision: Revision = None,
) -> None:
    """Ask what a model survives: other layer orders, missing layers; and what each layer does at each place.

    Of a run of `layerwise train` every model is asked, and they are compared. demo-vit trains them first (minutes).

    [dim]layerwise robustness demo-vit[/]

    [dim]layerwise robustness runs/vit-base-patch16-224-1a2b3c4d[/]

    [dim]layerwise robustness google/vit-base-patch16-224 --images FOLDER[/]
    """
    if not quiet:
        write(errors, f"loading {model}")
    from layerwise.cli.materials import Material
    from layerwise.cli.trial import Opening, Trial
    from layerwise.measure.survey import Questions

    questions = Questions(orders=orders, draws=draws, seed=seed)
    material = Material(images, text, unreadable, limit, length, seed, validation, test)
    opening = Opening(tokenizer, layers, device, dtype, revision)
    trial = Trial(questions, material, opening, fresh=fresh, quiet=quiet)
    if (Path(model) / "manifest.json").is_file():
        if run is not None:
            raise RunError(f"what is found goes into the run that was given, {model}: leave out --run {run}")
        trial.of_run(Path(model))
    elif model == "demo-vit":
        trial.of_demo(model, seeds, run)
    else:
        trial.of_model(model, run)
