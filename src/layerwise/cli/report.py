"""`layerwise report`: the results of a run as a page, Markdown, tables or findings."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Literal, get_args

from cyclopts import Parameter

from layerwise import results
from layerwise.cli.command import path_parameter
from layerwise.errors import OptionError, RunError
from layerwise.results import Run
from layerwise.runner.terminal import output, write

Format = Literal["html", "markdown", "findings", "parquet", "csv"]
FORMATS: tuple[str, ...] = get_args(Format)

FORMAT = Parameter(
    "--format",
    help="HTML page, Markdown, findings on published statements over several runs, or tables.",
    metavar="CHOICE",
    converter=lambda _, tokens: tokens[0].value,
)
OUTPUT = "File to write, or folder for tables (default: RUN/report.html, RUN/exports, otherwise the terminal)."


def report(
    *runs: Annotated[Path, path_parameter("RUN", "Run directory; several for findings.")],
    # With `| str`, unknown values reach the check below, also if pydantic is imported.
    format: Annotated[Format | str, FORMAT] = "html",
    output_path: Annotated[Path | None, path_parameter("--output", OUTPUT, "PATH")] = None,
) -> None:
    """Write the results of a run as a page, Markdown, tables or findings.

    The run can be interrupted or still in progress.

    layerwise report runs/demo

    layerwise report runs/demo --format markdown --output results.md

    layerwise report runs/swept runs/diagnosed --format findings

    layerwise report runs/demo --format csv
    """
    if format not in FORMATS:
        raise OptionError(f"--format must be one of {', '.join(FORMATS)}, got {format[:60]!r}.")
    if not runs:
        raise RunError("layerwise report requires a run directory. Pass it as RUN.")
    if format != "findings" and len(runs) > 1:
        raise OptionError(
            f"--format {format} requires a single run, got {len(runs)}. For several, pass --format findings or run "
            "`layerwise compare RUN RUN`."
        )
    with ExitStack() as stack:
        opened = [stack.enter_context(Run.open(folder)) for folder in runs]
        if format in ("csv", "parquet"):
            for path in results.export(opened[0], output_path, "csv" if format == "csv" else "parquet"):
                write(output, str(path))
        else:
            _write_text(opened, format, output_path)


def _write_text(runs: list[Run], format: str, path: Path | None) -> None:
    from layerwise import page as pages
    from layerwise.runner.summary import report_data, summary

    data = [report_data(run) for run in runs]
    if format == "html":
        path = path or runs[0].report
        pages.write(path, pages.render(data[0]))
        write(output, summary(data[0]))
    else:
        text = pages.findings_page(data) if format == "findings" else pages.markdown(data[0])
        if path is None:
            write(output, text)
            return
        pages.write(path, text)
    write(output, f"report: {path}")
