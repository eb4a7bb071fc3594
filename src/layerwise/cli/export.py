"""`layerwise export`: the rows of a run as Parquet or CSV, for pandas, R and spreadsheets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from layerwise import results
from layerwise.cli.command import path_parameter
from layerwise.experiments.terminal import output, write


def export(
    run: Annotated[Path, path_parameter("RUN", "Run folder.")],
    /,
    *,
    folder: Annotated[
        Path | None,
        path_parameter("--output", "Folder to write; by default RUN/exports.", "FOLDER"),
    ] = None,
    format: Annotated[Literal["csv", "parquet"], Parameter(help="File format.")] = "parquet",
) -> None:
    """Write the losses, scores and plans of a run as Parquet or CSV files.

    layerwise export runs/demo --format csv
    """
    with results.Run.open(run) as opened:
        for path in results.export(opened, folder, format):
            write(output, str(path))
