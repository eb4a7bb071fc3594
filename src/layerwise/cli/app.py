"""The command `layerwise`: one verb a file, gathered here.

Every error that layerwise raises on purpose is printed as its message alone, with exit code 2. Anything else is a
defect, and keeps its traceback.
"""

from __future__ import annotations

import sys

import typer
from transformers.utils.logging import disable_progress_bar

from layerwise.cli import export, plan, report, sweep, verify
from layerwise.cli.screen import errors
from layerwise.errors import LayerwiseError

app = typer.Typer(
    name="layerwise",
    help="The layers of a transformer, first-class: any order, any subset, any mixture.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
app.command("sweep")(sweep.sweep)
app.command("plan")(plan.plan)
app.command("verify")(verify.verify)
app.command("report")(report.report)
app.command("export")(export.export)


def main() -> None:
    """Run the command line; the entry point of the package."""
    disable_progress_bar()
    try:
        app()
    except LayerwiseError as error:
        errors.print(f"[bold red]{type(error).__name__}[/]", highlight=False)
        errors.print(str(error), markup=False, highlight=False, soft_wrap=True)
        sys.exit(2)
