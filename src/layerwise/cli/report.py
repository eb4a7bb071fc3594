"""`layerwise report`: the rows of a run as one HTML page, and what was found as a few sentences."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from layerwise.cli.options import RunFolder
from layerwise.cli.screen import output, write
from layerwise.results import Run


def report(
    run: RunFolder,
    to: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where to write the page; by default RUN/report.html.")
    ] = None,
    text: Annotated[
        bool, typer.Option("--markdown", help="Print findings and tables as Markdown, write no page.")
    ] = False,
) -> None:
    """Write the report of a run, also of one that was stopped half-way or is still being written.

    [dim]layerwise report runs/demo[/]

    [dim]layerwise report runs/demo --markdown > findings.md[/]
    """
    with Run.open(run) as opened:
        from layerwise import report as pages
        from layerwise.cli.findings import headline, report_data

        data = report_data(opened)
        if text:
            write(output, pages.markdown(data))
            return
        page = to or opened.report
        pages.write(page, pages.render(data))
        write(output, headline(data))
        write(output, f"report: {page}")
