"""`layerwise wiring`: what the learned layer weights of a model are worth, edge by edge, and which can go."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from layerwise.cli.options import (
    DATA,
    RUN,
    SEED,
    Device,
    Dtype,
    Fresh,
    Images,
    OwnRun,
    Quiet,
    TestText,
    TrainingLength,
    TrainingText,
    Unreadable,
    ValidationText,
)
from layerwise.cli.screen import errors, write
from layerwise.errors import MeasureError, RunError

CUTS = "What is cut"


def wiring(
    model: Annotated[
        str, typer.Argument(metavar="RUN_OR_MODEL", help="A run of `layerwise train`, or the folder of one model.")
    ],
    keep: Annotated[
        float | None, typer.Option(metavar="SHARE", help="Keep this share of the edges.", rich_help_panel=CUTS)
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(metavar="NATS", help="Cut until the loss has risen by so much.", rich_help_panel=CUTS),
    ] = None,
    rounds: Annotated[
        int, typer.Option(min=1, max=1_000, metavar="N", help="Rank what is left anew so often.", rich_help_panel=CUTS)
    ] = 1,
    save: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="Write the sparse model there, or its edges.json.", rich_help_panel=CUTS),
    ] = None,
    images: Images = None,
    text: TrainingText = None,
    validation: ValidationText = None,
    test: TestText = None,
    unreadable: Unreadable = "refuse",
    limit: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="So many images, or segments of a masked text (256), a half.",
            rich_help_panel=DATA,
        ),
    ] = None,
    length: TrainingLength = None,
    run: OwnRun = None,
    fresh: Fresh = False,
    seed: Annotated[int, typer.Option(**SEED, metavar="N", help="Draws splits and cuts.", rich_help_panel=RUN)] = 0,
    quiet: Quiet = False,
    device: Device = "auto",
    dtype: Dtype = "auto",
) -> None:
    """Draw learned layer weights, measure what each edge does, and cut those that do little.

    Every edge is cut alone and the rise of the loss measured: its weight does not tell. What is left after a cut is
    judged on other examples than chose it, against as many edges cut at random and by size.

    [dim]layerwise wiring runs/demo-vit-1a2b3c4d[/]

    [dim]layerwise wiring RUN/wiring-identity/seed-0/model --keep 0.3 --save sparse[/]

    [dim]layerwise wiring RUN/elc/seed-0/model --text FOLDER --tolerance 0.01[/]
    """
    if save is not None and keep is None and tolerance is None:
        raise MeasureError(f"nothing is cut that could be saved to {save}: give --keep SHARE or --tolerance NATS")
    if keep is not None and not 0 < keep <= 1:
        raise MeasureError(f"the share of edges to keep is between 0 and 1, not {keep:g}")
    if tolerance is not None and tolerance < 0:
        raise MeasureError(f"the rise that is tolerated is in nats, 0 or more, not {tolerance:g}")
    if not quiet:
        write(errors, f"loading {model}")
    from layerwise.cli.cutting import Cutting, is_run
    from layerwise.cli.materials import Material

    material = Material(images, text, unreadable, limit, length, seed, validation, test)
    cutting = Cutting(material, keep, tolerance, rounds, save, device=device, dtype=dtype, fresh=fresh, quiet=quiet)
    if not is_run(model):
        cutting.of_model(model, run)
    elif run is not None:
        raise RunError(f"what is found goes into the run that was given, {model}: leave out --run {run}")
    else:
        cutting.of_run(Path(model).expanduser())
