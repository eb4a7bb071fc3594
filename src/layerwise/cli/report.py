"""`layerwise report`: what a run found, as a page, as Markdown, as tables of rows, or as findings."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Literal, get_args

from cyclopts import Parameter

from layerwise import results
from layerwise.cli.command import path_parameter
from layerwise.errors import OptionError, RunError, near_matches
from layerwise.results import Run
from layerwise.runner.terminal import output, write

# With the text beside the choices cyclopts leaves the refusal of another to the verb, also where pydantic is imported.
Format = Literal["html", "markdown", "findings", "parquet", "csv"]
FORMATS: tuple[str, ...] = get_args(Format)

FORM = Parameter(
    "--format",
    help="A page, Markdown, findings on published statements over several runs, or tables.",
    metavar="CHOICE",
    converter=lambda _, tokens: tokens[0].value,
)
OUTPUT = "File to write, or folder of tables; by default RUN/report.html, RUN/exports, and else the terminal."


def report(
    *runs: Annotated[Path, path_parameter("RUN", "Run folder; several for findings.")],
    form: Annotated[Format | str, FORM] = "html",
    output_path: Annotated[Path | None, path_parameter("--output", OUTPUT, "PATH")] = None,
) -> None:
    """Write the results of a run as a page, as tables, or as findings.

    The run may have been stopped half-way, or still be written.

    layerwise report runs/demo

    layerwise report runs/demo --format markdown --output results.md

    layerwise report runs/swept runs/diagnosed --format findings

    layerwise report runs/demo --format csv
    """
    if form not in FORMATS:
        raise OptionError(f"there is no format {form[:60]!r}; {near_matches(form, FORMATS)}")
    if not runs:
        raise RunError("no run was given; write layerwise report RUN, with the folder of a run")
    if form != "findings" and len(runs) > 1:
        raise OptionError(
            f"{len(runs)} runs were given, and {form} shows one: give one, or write --format findings, or layerwise "
            "compare RUN RUN for models side by side"
        )
    with ExitStack() as stack:
        opened = [stack.enter_context(Run.open(folder)) for folder in runs]
        if form in ("csv", "parquet"):
            for path in results.export(opened[0], output_path, "csv" if form == "csv" else "parquet"):
                write(output, str(path))
        else:
            _write_text(opened, form, output_path)


def _write_text(runs: list[Run], form: str, path: Path | None) -> None:
    from layerwise import page as pages
    from layerwise.runner.summary import report_data, summary

    data = [report_data(run) for run in runs]
    if form == "html":
        path = path or runs[0].report
        pages.write(path, pages.render(data[0]))
        write(output, summary(data[0]))
    else:
        text = pages.findings_page(data) if form == "findings" else pages.markdown(data[0])
        if path is None:
            write(output, text)
            return
        pages.write(path, text)
    write(output, f"report: {path}")
