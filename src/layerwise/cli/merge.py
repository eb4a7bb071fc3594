"""`layerwise merge`: layers of several models in one, judged over many draws, or written out as a checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from layerwise.cli.options import (
    MODEL,
    RUN,
    SEED,
    Device,
    Dtype,
    Fresh,
    Images,
    Length,
    Limit,
    OwnRun,
    Quiet,
    TestText,
    TrainingText,
    Unreadable,
    ValidationText,
)
from layerwise.errors import ModelError
from layerwise.plan import Plan

SAVED = "Written out"
DRAWS = 100


def merge(
    models: Annotated[
        list[str], typer.Argument(metavar="RUN_OR_MODEL", help="Runs of `layerwise train`, folders, hub ids.")
    ],
    draws: Annotated[
        int | None,
        typer.Option(min=1, max=100_000, metavar="N", help=f"Merged models of each kind; {DRAWS} unless one is saved."),
    ] = None,
    save: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write one merged model there.", rich_help_panel=SAVED)
    ] = None,
    plan: Annotated[
        str | None, typer.Option(metavar="PLAN", help='Its layers, as in "a:0-3 b:4-7".', rich_help_panel=SAVED)
    ] = None,
    arm: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only models that were trained so.", rich_help_panel=MODEL)
    ] = None,
    images: Images = None,
    text: TrainingText = None,
    validation: ValidationText = None,
    test: TestText = None,
    unreadable: Unreadable = "refuse",
    limit: Limit = None,
    length: Length = None,
    run: OwnRun = None,
    fresh: Fresh = False,
    seed: Annotated[int, typer.Option(**SEED, metavar="N", help="Draws the merged models.", rich_help_panel=RUN)] = 0,
    quiet: Quiet = False,
    device: Device = "auto",
    dtype: Dtype = "auto",
) -> None:
    """Put models together from the layers of several, and see whether they are as good as those.

    The models of each way of training are merged among themselves. They are called a, b, c, ... in the order given.

    [dim]layerwise merge runs/vit-base-patch16-224-1a2b3c4d --draws 100[/]

    [dim]layerwise merge FOLDER1 FOLDER2 --save merged --plan "a:0-5 b:6-11"[/]

    [dim]layerwise merge demo --save shallow --plan "0-3 6-11"[/]   one model, with layers left out
    """
    if (save is None) != (plan is None):
        raise ModelError(
            "a merged model is written by --save FOLDER and --plan PLAN together, as in --save merged --plan "
            '"a:0-5 b:6-11"'
        )
    wanted = Plan.parse(plan) if plan is not None else None
    from layerwise.cli.materials import Material
    from layerwise.cli.union import Union

    union = Union.of(models, arm, device=device, dtype=dtype, quiet=quiet)
    if save is not None and wanted is not None:
        union.write(wanted, save, fresh=fresh)
    if draws is not None or save is None:
        material = Material(images, text, unreadable, limit, length, seed, validation, test)
        union.judge(material, run, draws=draws or DRAWS, fresh=fresh and save is None)
