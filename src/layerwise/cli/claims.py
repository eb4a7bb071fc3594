"""`layerwise claims`: what became of the published claims on every model that was measured, as one Markdown page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from layerwise.cli.screen import output, write
from layerwise.results import Run


def claims(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="The folders of runs, of any kind.")],
    to: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the page there; by default it is printed.")
    ] = None,
) -> None:
    """Say what became of every published claim, with its rule, in one Markdown page over several runs.

    [dim]layerwise claims runs/demo[/]

    [dim]layerwise claims runs/swept runs/diagnosed runs/refined --to claims.md[/]
    """
    from layerwise import report as pages
    from layerwise.cli.findings import report_data

    found = []
    for folder in runs:
        with Run.open(folder) as run:
            found.append(report_data(run))
    page = pages.claims_page(found)
    if to is None:
        write(output, page)
        return
    pages.write(to, page)
    write(output, f"claims: {to}")
