"""The command `layerwise`.

If an error of layerwise is raised, its message is printed and the exit code is 2. Other exceptions print a traceback.
Verbs import torch and transformers only when they run.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from functools import cache
from itertools import takewhile
from typing import NoReturn

from cyclopts import App, CycloptsError, Group, MissingArgumentError, UnknownOptionError, UnusedCliTokensError

import layerwise.catalogue  # registers the verbs
from layerwise.cli.command import build_command, describe_verb
from layerwise.cli.plan import plan
from layerwise.cli.report import report
from layerwise.cli.run import run
from layerwise.errors import LayerwiseError
from layerwise.plan import Plan
from layerwise.runner.terminal import errors, write
from layerwise.runner.verb import CONSEQUENTIAL, VERBS

TRAINING_LENGTHS = ("steps", "epochs")
"""Options that are suggested if `--tokens` is passed to a verb that trains."""

MAX_LISTED_VERBS = 4

HELP = """Run, measure, train and serve transformers with their layers in any order.

A plan lists the layers to run. In a model of 32 layers, "0-13 18-31" skips
layers 14 to 17, and "0-13 (14|15|16|17) 18-31" runs those four in parallel.

layerwise plan "0-13 (14|15|16|17) 18-31"   explain a plan
layerwise sweep demo                        measure what skipping layers costs
layerwise diagnose demo                     find out which layers matter
layerwise run layershuffle                  reproduce a paper's experiments
"""

GROUPS = {
    name: Group(name, sort_key=rank)
    for rank, name in enumerate(("Plans", "Measuring", "Changing", "Training", "Serving", "Results"))
}

TRAIN = "Train for any layer order, pretrain with learned layer weights, or grow layer by layer."
COMPLETION = "--install-completion"
HELP_ALL = "--help-all"


@cache
def build(everything: bool = False, word: str = COMPLETION) -> App:
    """Build the command line, as far as it is needed for a command.

    Args:
        everything: Whether the help also lists rarely used options.
        word: First word of the command. If it is a verb, only this verb and its subcommands are built. If it is
            `COMPLETION`, all verbs are built. Otherwise, all verbs are built without their options.
    """
    app = App(
        name="layerwise",
        help=HELP,
        help_format="plaintext",
        version=lambda: f"layerwise {layerwise.__version__}",
        default_parameter=None,
        result_action="return_value",
    )
    about = Group("About", sort_key=9)
    app.register_install_completion_command(group=about, help="Install shell completion.")
    app["--help"].group = app["--version"].group = about
    verbs: dict[str, App] = {}
    listed = {verb.partition(" ")[0] for verb in VERBS}
    for verb in VERBS.values():
        first, _, member = verb.name.partition(" ")
        if word != first and word in listed:
            continue
        if first not in verbs:
            text = describe_verb(VERBS[first], everything) if first in VERBS else TRAIN
            verbs[first] = App(name=first, help=text, group=GROUPS[verb.group])
            app.command(verbs[first])
        if word not in (first, COMPLETION):
            continue
        command = build_command(verb, everything)
        if member:
            verbs[first].command(command, name=member, help=describe_verb(verb, everything))
        else:
            verbs[first].default(command)
    app.command(plan, group=GROUPS["Plans"], usage="Usage: layerwise plan [OPTIONS] PLAN")
    app.command(report, group=GROUPS["Results"], usage="Usage: layerwise report [OPTIONS] RUN...")
    app.command(run, group=GROUPS["Results"], usage="Usage: layerwise run [OPTIONS] RECIPE_OR_FILE [STAGE...]")
    return app


def main() -> None:
    words = sys.argv[1:]
    if words[:1] == ["help"]:
        words = [*words[1:], "--help"]
    everything = HELP_ALL in words
    try:
        app = build(everything, words[0] if words else "")
        arguments = ["--help" if word == HELP_ALL else word for word in words]
        sys.exit(app(arguments, print_error=False, exit_on_error=False) or 0)
    except LayerwiseError as error:
        _exit_with(str(error))
    except CycloptsError as error:
        command = " ".join(("layerwise", *(error.command_chain or ())))
        message = _describe_misuse(error, words)
        hint = "" if re.search(r"[.?] ", message) else f"\nRun {command} --help for a list of options."
        _exit_with(message + hint)


def _exit_with(message: str) -> NoReturn:
    write(errors, f"error: {message}", style="red")
    sys.exit(2)


def _describe_misuse(error: CycloptsError, words: Sequence[str]) -> str:
    if plan := next(_find_unquoted_plans(words), None):
        return f'A plan with spaces must be quoted. Write --plan "{plan}".'
    if isinstance(error, UnknownOptionError):
        return _describe_unknown(error)
    if isinstance(error, MissingArgumentError) and (missing := _describe_missing(error)):
        return missing
    if isinstance(error, UnusedCliTokensError):
        rest = " ".join(error.unused_tokens or ())
        return f"Unexpected argument: {rest}. Quote values with spaces, and separate the names of a list with commas."
    # Help has the list of commands.
    return str(error).partition(" Available commands:")[0]


def _describe_missing(error: MissingArgumentError) -> str:
    verb = " ".join(error.command_chain or ())
    argument = error.argument
    if argument is None:
        return ""
    flag = next((name for name in argument.names if name.startswith("--")), argument.name)
    if error.keyword is None and not flag.startswith("--"):
        return f"layerwise {verb} needs {flag}."
    arguments = VERBS[verb].listed.values() if verb in VERBS else ()
    metavar = next((each.placeholder for each in arguments if each.flag == flag), "VALUE")
    if error.keyword is None:
        return f"layerwise {verb} needs {flag} {metavar}."
    return f"{flag} must be followed by a value. Write {flag} {metavar}."


def _describe_unknown(error: UnknownOptionError) -> str:
    flag = (error.token.keyword or error.token.value).partition("=")[0]
    verb = " ".join(error.command_chain or ())
    verbs = [each for each in VERBS if flag in _list_flags(each)]
    text = f"Unknown option: {flag}."
    if verbs:
        more = f" and {len(verbs) - MAX_LISTED_VERBS} more" if len(verbs) > MAX_LISTED_VERBS else ""
        text = f"layerwise {verb} has no option {flag}; it belongs to {', '.join(verbs[:MAX_LISTED_VERBS])}{more}."
        lengths = [f"--{name}" for name in TRAINING_LENGTHS if verb in VERBS and f"--{name}" in _list_flags(verb)]
        if flag == "--tokens" and lengths:
            text += f" Set the length of training with {' or '.join(lengths)}."
        return text
    names = {name.lstrip("-"): name for each in error.argument_collection if each.parse for name in each.names}
    harmless = [name for name in names if name.replace("-", "_") not in CONSEQUENTIAL]
    near = get_close_matches(flag.lstrip("-"), harmless, n=1)
    return f"{text} Did you mean {names[near[0]]}?" if near else text


def _list_flags(verb: str) -> set[str]:
    return {each.flag for each in VERBS[verb].listed.values()}


def _find_unquoted_plans(words: Sequence[str]) -> Iterator[str]:
    for at, flag in enumerate(words):
        if flag == "--plan":
            pieces = list(takewhile(_is_plan, words[at + 1 :]))
            if len(pieces) > 1:
                yield " ".join(pieces)


def _is_plan(text: str) -> bool:
    try:
        Plan.parse(text)
    except LayerwiseError:
        return False
    return True
