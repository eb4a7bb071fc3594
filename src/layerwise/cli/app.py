"""The command `layerwise`: every verb, in groups.

Expected errors print their message and exit with code 2, and Ctrl-C exits with 130; any other exception keeps its
traceback. Verbs import torch and transformers only when they run.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from functools import cache
from typing import NoReturn

from cyclopts import App, CycloptsError, Group, MissingArgumentError, UnknownOptionError, UnusedCliTokensError

import layerwise.catalogue  # which makes the verbs known
from layerwise.cli.command import build_command, describe_verb
from layerwise.cli.plan import plan
from layerwise.cli.report import report
from layerwise.cli.run import run
from layerwise.errors import LayerwiseError
from layerwise.plan import Plan
from layerwise.runner.terminal import errors, write
from layerwise.runner.verb import CONSEQUENTIAL, VERBS

LENGTHS = ("steps", "epochs")
"""The options that say how long a training is, for those who look for `--tokens`."""

PLANS = ("--plan",)

_NAMED = 4  # verbs in a refusal

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
    """Build the command line as far as it is needed; a process makes it once.

    `word` is the first word typed: a verb is built with its kinds, `COMPLETION` builds all, and anything else builds
    the verbs of `layerwise --help` without their options. Help lists the usual options, or `everything`.
    """
    app = App(
        name="layerwise",
        help=HELP,
        help_format="plaintext",
        version=_version,
        default_parameter=None,
        result_action="return_value",
    )
    about = Group("About", sort_key=9)
    app.register_install_completion_command(group=about, help="Let this shell complete verbs and options.")
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
    """Run the command line; the entry point of the package."""
    words = sys.argv[1:]
    if words[:1] == ["help"]:
        words = [*words[1:], "--help"]
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


def unread(error: CycloptsError, words: Sequence[str]) -> str:
    if split := next(_split_plans(words), None):
        flag, plan = split
        return f'a plan with spaces is one word for the shell only in quotes; write {flag} "{plan}"'
    if isinstance(error, UnknownOptionError):
        return _unknown(error)
    if isinstance(error, MissingArgumentError) and (missing := _missing(error)):
        return missing
    if isinstance(error, UnusedCliTokensError):
        rest = " ".join(error.unused_tokens or ())
        return f"nothing takes {rest!r}: quote a value that has spaces, and join the names of a list with commas"
    # The list of all commands is left out: the near match is named, and the help has the list.
    return str(error).partition(" Available commands:")[0]


def _missing(error: MissingArgumentError) -> str:
    verb = " ".join(error.command_chain or ())
    argument = error.argument
    if argument is None:
        return ""
    flag = next((name for name in argument.names if name.startswith("--")), argument.name)
    if error.keyword is None and not flag.startswith("--"):
        return f"layerwise {verb} needs {flag}."
    metavar = _metavar(verb, flag)
    if error.keyword is None:
        return f"layerwise {verb} needs {flag} {metavar}."
    return f"{flag} must be followed by a value. Write {flag} {metavar}."


def _metavar(verb: str, flag: str) -> str:
    arguments = VERBS[verb].listed.values() if verb in VERBS else ()
    return next((each.placeholder for each in arguments if each.flag == flag), "VALUE")


def _unknown(error: UnknownOptionError) -> str:
    flag = (error.token.keyword or error.token.value).partition("=")[0]
    verb = " ".join(error.command_chain or ())
    known = [each for each in VERBS if flag in _flags(each)]
    text = f"Unknown option: {flag}."
    if known:
        more = f" and {len(known) - _NAMED} more" if len(known) > _NAMED else ""
        text = f"{verb} has no {flag}, which is an option of {', '.join(known[:_NAMED])}{more}."
        lengths = [f"--{name}" for name in LENGTHS if verb in VERBS and f"--{name}" in _flags(verb)]
        if flag == "--tokens" and lengths:
            text += f" How long it trains is said by {' or '.join(lengths)}."
        return text
    names = {name.lstrip("-"): name for each in error.argument_collection if each.parse for name in each.names}
    harmless = [name for name in names if name.replace("-", "_") not in CONSEQUENTIAL]
    near = get_close_matches(flag.lstrip("-"), harmless, n=1)
    return f"{text} Did you mean {names[near[0]]}?" if near else text


def _flags(verb: str) -> set[str]:
    return {each.flag for each in VERBS[verb].listed.values()}


def _split_plans(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    for at, flag in enumerate(words):
        if flag in PLANS:
            pieces = []
            for word in words[at + 1 :]:
                if not _is_plan(word):
                    break
                pieces.append(word)
            if len(pieces) > 1:
                yield flag, " ".join(pieces)


def _is_plan(text: str) -> bool:
    try:
        Plan.parse(text)
    except LayerwiseError:
        return False
    return True
