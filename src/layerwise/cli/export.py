"""`layerwise export`: the rows of a run as Parquet or CSV, for pandas, R and spreadsheets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from layerwise import results
from layerwise.cli.options import RunFolder
from layerwise.cli.screen import output, write
from layerwise.errors import RunError, near_matches

FORMATS = ("csv", "parquet")


def export(
    run: RunFolder,
    to: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="The folder to write to; by default RUN/exports.")
    ] = None,
    format: Annotated[str, typer.Option(metavar="NAME", help=f"One of {', '.join(FORMATS)}.")] = "parquet",
) -> None:
    """Write the losses, scores and plans of a run as Parquet or CSV files.

    [dim]layerwise export runs/demo --format csv[/]
    """
    if format not in FORMATS:
        raise RunError(f"there is no export format {format!r}; {near_matches(format, FORMATS)}")
    with results.Run.open(run) as opened:
        for path in results.export(opened, to, "csv" if format == "csv" else "parquet"):
            write(output, str(path))
