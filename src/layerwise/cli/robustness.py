"""`layerwise robustness`: what a model survives, or every model of a course: the tables and figures of the paper."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from layerwise.cli.options import RUN, Device, Dtype, Fresh, Layers, OwnRun, Quiet, Revision, Tokenizer
from layerwise.cli.screen import errors, write
from layerwise.cli.train import Images, Limit, TrainingLength, TrainingText, Unreadable
from layerwise.errors import RunError

ASKED = "What is asked"


def robustness(
    model: Annotated[
        str, typer.Argument(metavar="RUN_OR_MODEL", help="A run of `layerwise train`, a hub id, a folder, demo-vit.")
    ],
    images: Images = None,
    text: TrainingText = None,
    unreadable: Unreadable = "refuse",
    limit: Limit = None,
    length: TrainingLength = None,
    orders: Annotated[
        int, typer.Option(min=1, metavar="N", help="Fixed orders, each over all examples.", rich_help_panel=ASKED)
    ] = 100,
    draws: Annotated[
        int, typer.Option(min=1, metavar="N", help="Fresh orders a condition, at least.", rich_help_panel=ASKED)
    ] = 16,
    seeds: Annotated[
        int, typer.Option(min=1, metavar="N", help="Seeds of demo-vit's methods.", rich_help_panel=ASKED)
    ] = 3,
    run: OwnRun = None,
    fresh: Fresh = False,
    seed: Annotated[int, typer.Option(metavar="N", help="Draws orders and subsets.", rich_help_panel=RUN)] = 0,
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
    from layerwise.cli.trial import Opening, of_demo, of_model, of_run
    from layerwise.measure.survey import Questions

    questions = Questions(orders=orders, draws=draws, seed=seed)
    material = Material(images, text, unreadable, limit, length, seed)
    opening = Opening(tokenizer, layers, device, dtype, revision)
    if (Path(model) / "manifest.json").is_file():
        if run is not None:
            raise RunError(f"what is found goes into the run that was given, {model}: leave out --run {run}")
        of_run(Path(model), questions, material, opening, fresh=fresh, quiet=quiet)
    elif model == "demo-vit":
        of_demo(model, seeds, questions, material, opening, run, fresh=fresh, quiet=quiet)
    else:
        of_model(model, questions, material, opening, run, fresh=fresh, quiet=quiet)
