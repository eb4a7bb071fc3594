"""`layerwise claims`: what became of the published claims on every model that was measured, as one Markdown page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from layerwise.cli.command import path_parameter
from layerwise.errors import RunError
from layerwise.experiments.terminal import output, write
from layerwise.results import Run


def claims(
    *runs: Annotated[Path, Parameter(name="RUN", help="Run folders, of any kind.")],
    output_file: Annotated[
        Path | None,
        path_parameter("--output", "Page to write; by default it is printed.", "FILE"),
    ] = None,
) -> None:
    """Say what became of every published claim, with its rule, in one Markdown page over several runs.

    layerwise claims runs/demo

    layerwise claims runs/swept runs/diagnosed runs/trained --output claims.md
    """
    from layerwise import report as pages
    from layerwise.experiments.summary import report_data

    if not runs:
        raise RunError("no run was given; write layerwise claims RUN, with the folder of one run or of several")
    data = []
    for folder in runs:
        with Run.open(folder) as run:
            data.append(report_data(run))
    page = pages.claims_page(data)
    if output_file is None:
        write(output, page)
        return
    pages.write(output_file, page)
    write(output, f"claims: {output_file}")
