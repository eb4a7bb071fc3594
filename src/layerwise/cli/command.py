"""Commands built from configurations, whose fields give the flags, types, choices, defaults and help texts."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import MISSING
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from cyclopts import Group, Parameter

from layerwise.runner.experiment import Action, Configuration, Experiment
from layerwise.runner.option import (
    Option,
    _hints,
    choices_of,
    flag_of,
    from_text,
    is_switch,
    options_of,
    own_first,
    path_of,
    settings_of,
    split_settings,
)
from layerwise.runner.spelling import in_flags, refusals
from layerwise.runner.verb import Verb, VerbCall, from_command_line

USUAL = Group("Options", sort_key=0)
"""The heading of a verb's own options, and of all in a help that lists the usual ones."""
QUIET = Parameter(("--quiet", "-q"), negative=(), show_default=False, group=USUAL, help="Print only the result.")
DRY_RUN = Parameter(
    "--dry-run",
    negative=(),
    show_default=False,
    group=USUAL,
    help="Print the work and its cost, then exit.",
)
SET = "set"
"""The option of settings, `--set NAME=VALUE`, which trainings also have for transformers' arguments."""

_WIDTH = 78


def command(kind: type[Configuration], everything: bool = False) -> Callable[..., int]:
    """Return the function that carries a configuration out; its help lists the usual options, or `everything`."""

    def run(*positional: Any, **options: Any) -> int:
        quiet, dry_run = (options.pop(name, False) for name in ("quiet", "dry_run"))
        names = [name for name, (_, each) in options_of(kind).items() if each.positional]
        if SET in options and not isinstance(kind, Verb):
            options |= split_settings(kind, options.pop(SET))
        with refusals(kind, in_flags), from_command_line():
            # Arguments that have a default may be left out, the last ones first.
            config = kind(**(dict(zip(names, positional, strict=False)) | options))
        return carry_out(config, quiet=quiet, dry_run=dry_run)

    parameters = sorted(_parameters(kind, everything), key=lambda each: each.kind)
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    run.__name__ = kind.VERB
    run.__doc__ = help_of(kind, everything)
    return run


def carry_out(config: Configuration, *, quiet: bool, dry_run: bool) -> int:
    """Carry a configuration out on the terminal; returns the exit code."""
    # What is heavy (torch, transformers) is imported when the configuration has been accepted.
    from layerwise.runner.terminal import Terminal

    if isinstance(config, VerbCall):
        with Terminal(quiet) as reporter:
            return config.carry_out(reporter, dry_run)
    with refusals(type(config), in_flags), Terminal(quiet) as reporter:
        if isinstance(config, Action):
            return config.act(reporter)
        assert isinstance(config, Experiment)
        from layerwise.runner.perform import describe, perform

        (describe if dry_run else perform)(config, reporter)
    return 0


def help_of(kind: type[Configuration], everything: bool = False) -> str:
    """Return the configuration's docstring and its examples as commands; with `everything` its settings too."""
    text = kind.help if isinstance(kind, Verb) else inspect.cleandoc(kind.__doc__ or "")
    paragraphs = [" ".join(text.split()) for text in text.split("\n\n")]
    examples = [f"layerwise {kind.VERB} {text}".rstrip() for text in kind.EXAMPLES]
    settings = settings_of(kind)
    if everything:
        rest = ["\n".join(["Settings, each written --set NAME=VALUE:", *_rows(kind)])] if settings else []
    else:
        rare = [name for name, (_, each) in options_of(kind).items() if each.rare or each.setting]
        rest = [f"layerwise {kind.VERB} --help-all lists {len(rare)} more options."] if rare else []
    return "\n\n".join(filter(None, [*paragraphs, "\n".join(examples), *rest]))


def _rows(kind: type[Configuration]) -> Iterator[str]:
    hints = get_type_hints(kind)
    for name, each in settings_of(kind).items():
        hint = hints[name]
        value = "|".join(get_args(hint)) if get_origin(hint) is Literal else "true" if hint is bool else each.metavar
        yield textwrap.fill(f"{name}={value}  {each.help}", _WIDTH, subsequent_indent="    ")


def _parameters(kind: type[Configuration], everything: bool) -> Iterator[inspect.Parameter]:
    hints = _hints(kind)
    for name in own_first(kind):
        field, option = options_of(kind)[name]
        if option.setting or (name == SET and not isinstance(kind, Verb)):
            continue
        parameter_kind = inspect.Parameter.POSITIONAL_ONLY if option.positional else inspect.Parameter.KEYWORD_ONLY
        default = inspect.Parameter.empty if field.default is MISSING else field.default
        details = _details(kind, name, option, hints[name], field.default, everything)
        hint = hints[name]
        if get_origin(hint) is Literal:
            # Where pydantic happens to be imported, cyclopts lets it refuse other choices before the configuration can.
            hint = hint | str
        yield inspect.Parameter(name, parameter_kind, default=default, annotation=Annotated[hint, details])
    own = options_of(kind).get(SET)
    if not isinstance(kind, Verb) and (own is not None or settings_of(kind)):
        details = Parameter(
            "--set",
            metavar="NAME=VALUE",
            n_tokens=1,
            negative=(),
            show_default=False,
            group=_group(kind, SET, everything),
            help=f"Any setting of --help-all{', or of TrainingArguments' if own is not None else ''}.",
            converter=lambda type_, tokens: tuple(token.value for token in tokens),
        )
        yield inspect.Parameter(
            SET, inspect.Parameter.KEYWORD_ONLY, default=(), annotation=Annotated[tuple[str, ...], details]
        )
    keeps_run = kind.keeps_run if isinstance(kind, Verb) else issubclass(kind, Experiment)
    runs = (("dry_run", DRY_RUN),) if keeps_run else ()
    for name, details in (("quiet", QUIET), *runs):
        annotation = Annotated[bool, details]
        yield inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=annotation)


def _details(
    kind: type[Configuration], name: str, option: Option, hint: Any, default: Any, everything: bool
) -> Parameter:
    is_list = get_origin(hint) is tuple
    # Arguments stay under the heading that cyclopts has for them.
    choices = choices_of(kind, name)
    lists_choices = bool(choices) and all(each in option.help for each in choices)
    heading: dict[str, Any] = {} if option.positional else {"group": _group(kind, name, everything)}
    return Parameter(
        name=flag_of(kind, name),
        help=option.help,
        metavar=option.metavar or ("CHOICE" if get_origin(hint) is Literal else None),
        **heading,
        negative=f"--no-{name.replace('_', '-')}" if default is True or hint == (bool | None) else (),
        converter=None if is_switch(kind, name) else lambda _, tokens: from_text(kind, name, [t.value for t in tokens]),
        n_tokens=1 if is_list and not option.positional else None,
        show_default=_shown_default(default) if "by default" not in option.help and not lists_choices else False,
        show_choices=not lists_choices,
        show=everything or not option.rare,
    )


def _shown_default(default: Any) -> bool | Callable[[Any], str]:
    if default is MISSING or default is None or isinstance(default, bool) or default == ():
        return False
    return (lambda value: ", ".join(map(str, value))) if isinstance(default, tuple) else True


def path_parameter(flag: str, help: str, metavar: str | None = None) -> Parameter:
    name = flag if flag.startswith("--") else None
    return Parameter(name, help=help, metavar=metavar, converter=lambda _, tokens: path_of(flag, tokens[0].value))


def _group(kind: Any, name: str, everything: bool) -> Group:
    """Return the heading of an option: the class that declares it, `TextOptions` as "Text options"."""
    if isinstance(kind, Verb):
        is_rare = everything and options_of(kind)[name][1].rare
        return Group("More options", sort_key=1) if is_rare else USUAL
    classes = kind.__mro__
    home = next((each for each in classes if name in vars(each).get("__annotations__", {})), kind)
    if home is kind or not everything:
        return USUAL
    return Group(f"{re.findall('[A-Z][a-z]*', home.__name__)[0]} options", sort_key=classes.index(home))
