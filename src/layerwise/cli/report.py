"""`layerwise report`: the rows of a run as one HTML page, and what was found as a few sentences."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from layerwise.cli.command import path_parameter
from layerwise.errors import OptionError
from layerwise.experiments.terminal import output, write
from layerwise.results import Run


def report(
    run: Annotated[Path, path_parameter("RUN", "Run folder.")],
    /,
    *,
    output_file: Annotated[
        Path | None,
        path_parameter("--output", "Page to write; by default RUN/report.html.", "FILE"),
    ] = None,
    markdown: Annotated[
        bool,
        Parameter(negative=(), show_default=False, help="Print results and tables as Markdown, and write no page."),
    ] = False,
) -> None:
    """Write the report of a run, also of one that was stopped half-way or is still being written.

    layerwise report runs/demo

    layerwise report runs/demo --markdown > results.md
    """
    if markdown and output_file is not None:
        raise OptionError("--output does nothing here: --markdown prints, and writes no page; leave it out")
    with Run.open(run) as opened:
        from layerwise import report as pages
        from layerwise.experiments.summary import report_data, summary

        data = report_data(opened)
        if markdown:
            write(output, pages.markdown(data))
            return
        page = output_file or opened.report
        pages.write(page, pages.render(data))
        write(output, summary(data))
        write(output, f"report: {page}")
