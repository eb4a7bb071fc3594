"""A command from the configuration of an experiment: its options, their help and their headings.

Nothing is written twice: flags, types, choices, defaults and help texts are those of the configuration's fields, and
the help page is headed by its docstring.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import MISSING
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from cyclopts import Group, Parameter, Token

from layerwise.bounded import named
from layerwise.errors import OptionError
from layerwise.experiments.experiment import Action, Configuration, Experiment
from layerwise.experiments.option import Option, check_location, flag_of, options_of, split_commas
from layerwise.experiments.preset import PRESET, in_words, with_preset

INVOCATION = Group("This invocation", sort_key=99)
QUIET = Parameter(
    "--quiet", negative=(), show_default=False, group=INVOCATION, help="Print the result and nothing else."
)
DRY_RUN = Parameter(
    "--dry-run", negative=(), show_default=False, group=INVOCATION,
    help="Print what would be computed, and what it costs; then end.",
)  # fmt: skip


def command(kind: type[Configuration]) -> Callable[..., int]:
    """The function that the command line calls for a configuration: it makes one and carries it out."""

    def run(*positional: Any, **options: Any) -> int:
        quiet, dry_run = (options.pop(name, False) for name in ("quiet", "dry_run"))
        names = [name for name, (_, each) in options_of(kind).items() if each.positional]
        # Arguments that have a default may be left out, the last ones first.
        config = kind(**with_preset(kind, dict(zip(names, positional, strict=False)) | options))
        return carry_out(config, quiet=quiet, dry_run=dry_run)

    parameters = sorted(_parameters(kind), key=lambda each: each.kind)
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    run.__name__ = kind.VERB
    run.__doc__ = help_of(kind)
    return run


def carry_out(config: Configuration, *, quiet: bool, dry_run: bool) -> int:
    """Carry a configuration out on the terminal; returns the exit code."""
    # What is heavy (torch, transformers) is imported when the configuration has been accepted.
    from layerwise.experiments.terminal import Terminal

    with Terminal(quiet) as reporter:
        if isinstance(config, Action):
            return config.act(reporter)
        assert isinstance(config, Experiment)
        from layerwise.experiments.runner import describe, perform

        (describe if dry_run else perform)(config, reporter)
    return 0


def help_of(kind: type[Configuration]) -> str:
    """The docstring of the configuration, whose lines the terminal breaks, and its examples as commands."""
    paragraphs = [" ".join(text.split()) for text in inspect.cleandoc(kind.__doc__ or "").split("\n\n")]
    examples = [f"layerwise {kind.VERB} {text}".rstrip() for text in kind.EXAMPLES]
    return "\n\n".join([*paragraphs, *examples])


def _parameters(kind: type[Configuration]) -> Iterator[inspect.Parameter]:
    hints = get_type_hints(kind)
    for name, (field, option) in options_of(kind).items():
        parameter_kind = inspect.Parameter.POSITIONAL_ONLY if option.positional else inspect.Parameter.KEYWORD_ONLY
        default = inspect.Parameter.empty if field.default is MISSING else field.default
        details = _details(kind, name, option, hints[name], field.default)
        hint = hints[name]
        if get_origin(hint) is Literal:
            # Where pydantic happens to be imported, cyclopts lets it refuse other choices before the configuration can.
            hint = hint | str
        yield inspect.Parameter(name, parameter_kind, default=default, annotation=Annotated[hint, details])
    if kind.PRESETS:
        yield inspect.Parameter(
            PRESET, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[str | None, _preset(kind)]
        )
    runs = (("dry_run", DRY_RUN),) if issubclass(kind, Experiment) else ()
    for name, details in (("quiet", QUIET), *runs):
        annotation = Annotated[bool, details]
        yield inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=annotation)


def _preset(kind: type[Configuration]) -> Parameter:
    settings = in_words(kind, partial(flag_of, kind))
    return Parameter(
        f"--{PRESET}", metavar="NAME", group=_own_group(kind), show_default=False,
        help=f"Settings of a published experiment, of which what is given beside it replaces its own. {settings}.",
    )  # fmt: skip


def _details(kind: type[Configuration], name: str, option: Option, hint: Any, default: Any) -> Parameter:
    is_list, is_path = get_origin(hint) is tuple, Path in (hint, *get_args(hint))
    listed = _repeated if option.repeated else _separated
    # A choice that there is not is refused in the words of the configuration, as in Python and in a YAML file.
    converter: Any = _text if get_origin(hint) is Literal else None
    if int in (hint, *get_args(hint)) and not is_list:
        converter = partial(_whole, flag_of(kind, name))
    # Arguments stay under the heading that cyclopts has for them.
    heading: dict[str, Any] = {} if option.positional else {"group": _group(kind, name)}
    return Parameter(
        name=flag_of(kind, name),
        help=option.help,
        metavar=option.metavar or ("CHOICE" if get_origin(hint) is Literal else None),
        **heading,
        negative=f"--no-{name.replace('_', '-')}" if default is True or hint == (bool | None) else (),
        converter=listed if is_list else partial(_path, flag_of(kind, name)) if is_path else converter,
        n_tokens=1 if is_list and not option.positional else None,
        show_default=_shown_default(default) if "by default" not in option.help else False,
    )


def _shown_default(default: Any) -> bool | Callable[[Any], str]:
    if default is MISSING or default is None or isinstance(default, bool) or default == ():
        return False
    return (lambda value: ", ".join(map(str, value))) if isinstance(default, tuple) else True


def path_parameter(flag: str, help: str, metavar: str | None = None) -> Parameter:
    """The parameter of a path: `flag` is its option, or the capitals that stand for it where it has none."""
    name = flag if flag.startswith("--") else None
    return Parameter(name, help=help, metavar=metavar, converter=partial(_path, flag))


def _path(flag: str, type_: Any, tokens: Sequence[Token]) -> Path:
    """The path of an option, if it can be looked up. An empty text is refused: it would be the working folder."""
    (token,) = tokens
    if not token.value:
        raise OptionError(f"{flag} was given an empty text; write what it is about, or leave it out")
    check_location(flag, token.value)
    return Path(token.value)


def _text(type_: Any, tokens: Sequence[Token]) -> str:
    (token,) = tokens
    return token.value


def _whole(flag: str, type_: Any, tokens: Sequence[Token]) -> int:
    """The whole number of an option; unlike cyclopts, a fraction is refused and not rounded."""
    (token,) = tokens
    try:
        return int(token.value)
    except ValueError as error:
        raise OptionError(f"{flag} takes a whole number; found {named(repr(token.value))}") from error


def _separated(type_: Any, tokens: Sequence[Token]) -> tuple[Any, ...]:
    element = get_args(type_)[0]
    return tuple(element(text) for text in split_commas(token.value for token in tokens))


def _repeated(type_: Any, tokens: Sequence[Token]) -> tuple[str, ...]:
    return tuple(token.value for token in tokens)


def _group(kind: type[Configuration], name: str) -> Group:
    """The heading of an option: the group of options that it comes from, `TextOptions` as "Text options".

    A verb's own options come first, and those of the run last.

    >>> from layerwise.experiments.sweep.config import Sweep
    >>> [_group(Sweep, name).name for name in ("tasks", "tokens", "device", "seed")]
    ['Sweep options', 'Text options', 'Model options', 'Run options']
    """
    for rank, base in enumerate(_option_groups(kind), start=1):
        if name in getattr(base, "__dataclass_fields__", ()):
            words = ["Run"] if issubclass(base, Experiment) else re.findall("[A-Z][a-z]*", base.__name__)[:-1]
            return Group(f"{' '.join(words).capitalize()} options", sort_key=rank)
    return _own_group(kind)


def _own_group(kind: type[Configuration]) -> Group:
    return Group(f"{kind.VERB.split()[-1].replace('-', ' ').capitalize()} options", sort_key=0)


def _option_groups(kind: type[Any]) -> Iterator[type[Any]]:
    """The base classes whose names are headings; what several verbs are derived from is none, but its bases are."""
    for base in kind.__bases__:
        if issubclass(base, Configuration) and base not in (Experiment, Action, Configuration):
            yield from _option_groups(base)
        else:
            yield base
