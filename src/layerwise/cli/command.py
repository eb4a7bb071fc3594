"""Build the command of a verb from its signature and docstring."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Group, Parameter

from layerwise.errors import OptionError
from layerwise.page.formatting import format_count
from layerwise.runner.arguments import Argument, Trait, check_location, list_choices
from layerwise.runner.terminal import Terminal
from layerwise.runner.verb import Verb, VerbCall, from_command_line

OPTIONS = Group("Options", sort_key=0)
MORE_OPTIONS = Group("More options", sort_key=1)
QUIET = Parameter(("--quiet", "-q"), negative=(), show_default=False, group=OPTIONS, help="Print only the result.")
DRY_RUN = Parameter(
    "--dry-run",
    negative=(),
    show_default=False,
    group=OPTIONS,
    help="Print what would be computed and its cost, then exit.",
)


def build_command(verb: Verb, everything: bool = False) -> Callable[..., int]:
    """Return the command of a verb as a function. If `everything`, its help also lists rarely used options."""

    def run(*positional: Any, **options: Any) -> int:
        quiet, dry_run = (options.pop(name, False) for name in ("quiet", "dry_run"))
        names = [name for name, each in verb.listed.items() if each.is_positional]
        with from_command_line():
            call = verb(**(dict(zip(names, positional, strict=False)) | options))
        return run_call(call, quiet=quiet, dry_run=dry_run)

    parameters = sorted(_list_parameters(verb, everything), key=lambda each: each.kind)
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    run.__name__ = verb.name
    run.__doc__ = describe_verb(verb, everything)
    return run


def run_call(call: VerbCall, *, quiet: bool, dry_run: bool) -> int:
    with Terminal(quiet) as reporter, from_command_line(dry_run):
        return int(getattr(call.call(reporter), "exit_code", 0))


def describe_verb(verb: Verb, everything: bool = False) -> str:
    paragraphs = [" ".join(text.split()) for text in verb.help.split("\n\n")]
    examples = [f"layerwise {verb.name} {text}".rstrip() for text in verb.examples]
    rare = sum(Trait.RARE in each.marks for each in verb.listed.values())
    rest = (
        [f"For {format_count(rare, 'more option')}: layerwise {verb.name} --help-all"]
        if rare and not everything
        else []
    )
    return "\n\n".join(filter(None, [*paragraphs, "\n".join(examples), *rest]))


def path_parameter(flag: str, help: str, metavar: str | None = None) -> Parameter:
    """Return a command-line parameter for a path that must not be empty or invalid."""

    def convert(_: Any, tokens: Any) -> Path:
        if not tokens[0].value:
            raise OptionError(f"{flag} must not be empty.")
        check_location(flag, tokens[0].value)
        return Path(tokens[0].value)

    return Parameter(flag if flag.startswith("--") else None, help=help, metavar=metavar, converter=convert)


def _list_parameters(verb: Verb, everything: bool) -> Iterator[inspect.Parameter]:
    for name, argument in verb.listed.items():
        kind = inspect.Parameter.POSITIONAL_ONLY if argument.is_positional else inspect.Parameter.KEYWORD_ONLY
        # The verb checks values. With `Any`, cyclopts does not use pydantic, even if something imported it.
        hint: Any = bool | None if bool in argument.kinds else tuple[Any, ...] if argument.element else Any
        annotation: Any = Annotated[hint, _describe_parameter(argument, everything)]
        yield inspect.Parameter(name, kind, default=argument.default, annotation=annotation)
    for name, details in (("quiet", QUIET), *((("dry_run", DRY_RUN),) if verb.keeps_run else ())):
        keyword = inspect.Parameter.KEYWORD_ONLY
        yield inspect.Parameter(name, keyword, default=False, annotation=Annotated[bool, details])


def _describe_parameter(argument: Argument, everything: bool) -> Parameter:
    choices = list_choices(argument.hint)
    lists_choices = bool(choices) and all(each in argument.help for each in choices)
    is_rare = Trait.RARE in argument.marks
    heading: dict[str, Any] = {} if argument.is_positional else {"group": MORE_OPTIONS if is_rare else OPTIONS}
    listing = f" [choices: {', '.join(choices)}]" if choices and not lists_choices else ""
    is_switch = bool in argument.kinds
    states_default = lists_choices or "default" in argument.help
    default = "" if states_default else _format_default(argument.default)
    text = f"{argument.help.removesuffix('.')} (default: {default})." if default else argument.help

    def convert(_: Any, tokens: Any) -> Any:
        return argument.parse([token.value for token in tokens], argument.flag)

    return Parameter(
        name=argument.flag,
        help=text + listing,
        metavar=None if is_switch else argument.placeholder,
        **heading,
        negative=f"--no-{argument.name.replace('_', '-')}" if is_switch and argument.default is not False else (),
        converter=None if is_switch else convert,
        n_tokens=1 if argument.element and not argument.is_positional else None,
        show_default=False,
        show=everything or not is_rare,
    )


def _format_default(default: Any) -> str:
    if default is inspect.Parameter.empty or default is None or isinstance(default, bool):
        return ""
    return ", ".join(map(str, default)) if isinstance(default, tuple) else str(default)
