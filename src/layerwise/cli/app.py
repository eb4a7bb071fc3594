"""The command `layerwise`: every verb, in groups.

Every error that layerwise raises on purpose is printed as its message alone, with exit code 2; Ctrl-C ends with 130.
Anything else is a defect, and keeps its traceback. The verbs import what is heavy (torch, transformers) when they run,
so that help, plans and misspelt options answer at once.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import NoReturn

from cyclopts import App, CycloptsError, Group

import layerwise
from layerwise.cli.claims import claims
from layerwise.cli.command import command, help_of
from layerwise.cli.export import export
from layerwise.cli.plan import plan
from layerwise.cli.report import report
from layerwise.cli.run import run
from layerwise.cli.unread import unread
from layerwise.errors import LayerwiseError
from layerwise.experiments.catalogue import CATALOGUE, configuration
from layerwise.experiments.terminal import errors, write

HELP = """The layers of a transformer, first-class: any order, any subset, any mixture, any machine.

A plan says which layers run, and in what order:

0-13 18-31                  all of 32 but the layers 14 to 17
0-13 17-14 18-31            those four backwards
0-13 (14|15|16|17) 18-31    those four side by side

Start here:

layerwise plan "0-13 (14|15|16|17) 18-31"   words, costs and a picture
layerwise sweep demo                        what moving and skipping layers does
layerwise diagnose demo                     which layers matter, and why
layerwise train robust layershuffle --model demo-vit
                                            train for any order of the layers
"""

GROUPS = {
    name: Group(name, sort_key=rank)
    for rank, name in enumerate(("Plans", "Measuring", "Changing", "Training", "Comparing", "Serving", "Results"))
}
"""The headings of the list of verbs."""

FAMILIES = {
    "train": ("Training", "Train a model: to work in other layer orders, from random weights, or in phases."),
    "study": ("Comparing", "Answer a question that takes many trainings, with its controls."),
    "swarm": ("Serving", "Run a model whose layers live on many machines, some of which may die."),
}
"""Verbs that consist of several commands: their group and their help."""


def _version() -> str:
    return f"layerwise {layerwise.__version__}"


@cache
def build() -> App:
    """The command line with every verb; a process makes it once."""
    app = App(
        name="layerwise", help=HELP, help_format="plaintext", version=_version,
        default_parameter=None, result_action="return_value",
    )  # fmt: skip
    app["--help"].group = app["--version"].group = Group("About", sort_key=9)
    families = {name: App(name=name, help=text, group=GROUPS[group]) for name, (group, text) in FAMILIES.items()}
    for family in families.values():
        app.command(family)
    for group, verbs in CATALOGUE.items():
        for verb in verbs:
            kind = configuration(verb)
            first, _, rest = verb.partition(" ")
            parent = families[first] if rest else app
            heading = None if rest else GROUPS[group]
            parent.command(command(kind), name=rest or first, help=help_of(kind), group=heading)
    app.command(plan, group=GROUPS["Plans"], usage="Usage: layerwise plan [OPTIONS] PLAN")
    app.command(claims, group=GROUPS["Results"], usage="Usage: layerwise claims [OPTIONS] RUN...")
    for function in (report, export, run):
        app.command(function, group=GROUPS["Results"])
    return app


def main() -> None:
    """Run the command line; the entry point of the package."""
    try:
        sys.exit(build()(sys.argv[1:], print_error=False, exit_on_error=False) or 0)
    except LayerwiseError as error:
        refuse(str(error))
    except CycloptsError as error:
        chain = " ".join(error.command_chain or ())
        refuse(f"{unread(error, sys.argv[1:])}\nlayerwise {chain}{' ' if chain else ''}--help lists the options")


def refuse(message: str) -> NoReturn:
    """End with code 2, and in the one form of every refusal: `error: `, what is wrong, what to write instead."""
    write(errors, f"error: {message}", style="red")
    sys.exit(2)
