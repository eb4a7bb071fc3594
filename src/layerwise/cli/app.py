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
from layerwise.cli.command import command, help_of
from layerwise.cli.plan import plan
from layerwise.cli.report import report
from layerwise.cli.run import run
from layerwise.cli.unread import unread
from layerwise.errors import LayerwiseError
from layerwise.experiments.catalogue import CATALOGUE, VERBS, configuration
from layerwise.experiments.terminal import errors, write

HELP = """The layers of a transformer, first-class: any order, any subset, any machine.

A plan says which layers run, and in what order: "0-13 18-31" are all of 32 but
the layers 14 to 17, "0-13 (14|15|16|17) 18-31" has those four side by side.

layerwise plan "0-13 (14|15|16|17) 18-31"   words, costs and a picture
layerwise sweep demo                        what moving and skipping layers does
layerwise diagnose demo                     which layers matter, and why
layerwise run layershuffle                  the experiments of a founding paper
"""

GROUPS = {
    name: Group(name, sort_key=rank)
    for rank, name in enumerate(("Plans", "Measuring", "Changing", "Training", "Serving", "Results"))
}
"""The headings of the list of verbs."""

TRAIN = "Train a model: for other orders, from scratch, or in phases."
"""The help of the one verb that is nothing without a kind."""

COMPLETION = "--install-completion"
"""What writes every verb and option into the files of a shell."""

ALL = "--help-all"
"""What lists every option of a verb, the rare ones too."""


def _version() -> str:
    return f"layerwise {layerwise.__version__}"


@cache
def build(everything: bool = False, word: str = COMPLETION) -> App:
    """The command line, as much of it as is needed; a process makes it once.

    `word` is the first one that was typed. Where it is a verb, that verb is made with its kinds; for `COMPLETION` all
    are, and else the verbs that `layerwise --help` lists, without their options. Help lists the usual options, or
    `everything`.
    """
    app = App(
        name="layerwise", help=HELP, help_format="plaintext", version=_version,
        default_parameter=None, result_action="return_value",
    )  # fmt: skip
    about = Group("About", sort_key=9)
    app.register_install_completion_command(group=about, help="Let this shell complete verbs and options.")
    app["--help"].group = app["--version"].group = about
    verbs: dict[str, App] = {}
    listed = {verb.partition(" ")[0] for verb in VERBS}
    for group, members in CATALOGUE.items():
        for verb in members:
            first, _, member = verb.partition(" ")
            if word != first and word in listed:
                continue
            if first not in verbs:
                text = help_of(configuration(first), everything) if first in VERBS else TRAIN
                verbs[first] = App(name=first, help=text, group=GROUPS[group])
                app.command(verbs[first])
            if word not in (first, COMPLETION):
                continue
            kind = configuration(verb)
            if member:
                verbs[first].command(command(kind, everything), name=member, help=help_of(kind, everything))
            else:
                verbs[first].default(command(kind, everything))
    app.command(plan, group=GROUPS["Plans"], usage="Usage: layerwise plan [OPTIONS] PLAN")
    app.command(report, group=GROUPS["Results"], usage="Usage: layerwise report [OPTIONS] RUN...")
    app.command(run, group=GROUPS["Results"], usage="Usage: layerwise run [OPTIONS] RECIPE_OR_FILE [STAGE...]")
    return app


def main() -> None:
    """Run the command line; the entry point of the package."""
    words = sys.argv[1:]
    everything = ALL in words
    try:
        app = build(everything, words[0] if words else "")
        arguments = ["--help" if word == ALL else word for word in words]
        sys.exit(app(arguments, print_error=False, exit_on_error=False) or 0)
    except LayerwiseError as error:
        refuse(str(error))
    except CycloptsError as error:
        chain = " ".join(error.command_chain or ())
        refuse(f"{unread(error, words)}\nlayerwise {chain}{' ' if chain else ''}--help lists the options")


def refuse(message: str) -> NoReturn:
    """End with code 2, and in the one form of every refusal: `error: `, what is wrong, what to write instead."""
    write(errors, f"error: {message}", style="red")
    sys.exit(2)
