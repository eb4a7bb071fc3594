"""`layerwise report`: the rows of a run as one HTML page, and what was found as a few sentences."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from layerwise import report as pages
from layerwise.cli.options import RunFolder
from layerwise.cli.screen import output
from layerwise.errors import RunError
from layerwise.results import Run
from layerwise.results.rows import Score


def report(
    run: RunFolder,
    to: Annotated[Path | None, typer.Option(help="Where to write the page; by default RUN/report.html.")] = None,
    text: Annotated[
        bool, typer.Option("--markdown", help="Print findings and tables as Markdown, write no page.")
    ] = False,
) -> None:
    """Write the report of a run, also of one that was stopped half-way or is still being written.

    [dim]layerwise report runs/demo[/]
    [dim]layerwise report runs/demo --markdown > findings.md[/]
    """
    with Run.open(run) as opened:
        data = report_data(opened)
        if text:
            output.print(pages.markdown(data), markup=False, soft_wrap=True)
            return
        page = to or opened.report
        pages.write(page, pages.render(data))
        output.print(headline(data), markup=False, soft_wrap=True)
        output.print(f"report: {page}", markup=False, soft_wrap=True)


def report_data(run: Run) -> pages.ReportData:
    """The rows of `run` as the report reads them; effects are reckoned here when the run was stopped before its own."""
    scores = run.store.scores()
    losses = tuple(run.store.losses())
    if not losses:
        raise RunError(f"{run.folder} has no rows yet; run `layerwise sweep` on it first")
    if not any(score.measure == "effect" for score in scores):
        scores += _provisional_effects(run)
    return pages.ReportData(asdict(run.manifest), tuple(run.store.plans()), tuple(scores), losses)


def headline(data: pages.ReportData) -> str:
    """What was found, one sentence a line."""
    return "\n".join(f"- {finding.text}" for finding in pages.findings(pages.Evidence.of(data)))


def _provisional_effects(run: Run) -> list[Score]:
    """Effects on the windows that every plan has rows for."""
    from layerwise.measure.effects import effects
    from layerwise.measure.grid import complete

    identity = next(record.plan for record in run.store.plans() if record.family == "identity")
    shared = complete(run.store.losses())
    return effects(shared, identity, seed=run.manifest.seed) if shared else []
