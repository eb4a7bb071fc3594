"""The command `layerwise`: one verb a file, gathered here.

Every error that layerwise raises on purpose is printed as its message alone, with exit code 2; Ctrl-C ends with 130.
Anything else is a defect, and keeps its traceback. The verbs import what is heavy (torch, transformers) when
they run, so that help, plans and misspelt options answer at once.
"""

from __future__ import annotations

import sys
from importlib import metadata
from typing import Annotated, NoReturn

import typer
from typer.exceptions import TyperException

from layerwise.cli import (
    claims,
    convert,
    diagnose,
    evaluate,
    export,
    merge,
    plan,
    report,
    robustness,
    save,
    study,
    sweep,
    train,
    verify,
    wiring,
)
from layerwise.cli.asked import Asked
from layerwise.cli.screen import errors, output, write
from layerwise.errors import LayerwiseError

HELP = """The layers of a transformer, first-class: any order, any subset, any mixture.

A plan says which layers run, and in what order:

0-13 18-31                  all of 32 but the layers 14 to 17
0-13 17-14 18-31            those four backwards
0-13 (14|15|16|17) 18-31    those four side by side

[bold]Start here[/]

[dim]layerwise plan "0-13 (14|15|16|17) 18-31"[/]   words, costs and a picture
[dim]layerwise sweep demo[/]                        what happens when layers are moved
[dim]layerwise diagnose demo[/]                     which layers matter, and what explains it
[dim]layerwise train layershuffle --model demo-vit[/]   a model that bears any order
"""

app = typer.Typer(
    name="layerwise",
    help=HELP,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for verb in (
    sweep.sweep,
    diagnose.diagnose,
    plan.plan,
    verify.verify,
    report.report,
    claims.claims,
    export.export,
    robustness.robustness,
    save.save,
    merge.merge,
    wiring.wiring,
    convert.convert,
    evaluate.evaluate,
):
    app.command(verb.__name__, cls=Asked)(verb)
for name, group in (("train", train.train), ("study", study.study)):
    app.add_typer(group, name=name)


def _version(wanted: bool) -> None:
    """Print the version and end."""
    if wanted:
        write(output, f"layerwise {metadata.version('layerwise')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    """What can be asked without a verb."""


def main() -> None:
    """Run the command line; the entry point of the package."""
    try:
        sys.exit(app(standalone_mode=False) or 0)
    except LayerwiseError as error:
        refuse(str(error))
    except TyperException as slip:
        asked = getattr(slip, "ctx", None)
        said = slip.format_message()  # none, where a group that was given no command has shown its help
        refuse(f"{said}\n{' '.join(asked.command_path.split())} --help says what there is" if asked and said else said)
    except typer.Abort:
        sys.exit(1)


def refuse(message: str) -> NoReturn:
    """End with code 2, and in the one form of every refusal: `error: `, what is wrong, what to write instead."""
    if message:
        write(errors, f"error: {message}", style="red")
    sys.exit(2)
