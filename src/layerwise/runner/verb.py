"""Verbs: typed functions that can be called from Python, the command line and YAML files.

    @verb("time", examples=('demo --plan "0-11" --plan "0-3 6-11"',))
    def time(model: ModelLike, plan: Plans = (), *, rounds: Annotated[int, Range(least=6)] = 20) -> Result:

The signature defines names, types, bounds and defaults, and the section `Args:` of the docstring has the help texts.
"""

from __future__ import annotations

import inspect
import re
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cached_property, wraps
from importlib import import_module
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, get_type_hints

from docstring_parser import DocstringStyle
from docstring_parser import parse as parse_docstring

from layerwise.bounded import named
from layerwise.errors import LayerwiseError, OptionError, RunError, near_matches
from layerwise.runner.arguments import (
    Argument,
    Flag,
    Metavar,
    Range,
    Trait,
    split_annotation,
)
from layerwise.runner.reporter import Reporter

P = ParamSpec("P")
R = TypeVar("R")

CONSEQUENTIAL = frozenset({"overwrite", "trust_remote_code", "push"})
"""Options that discard results, run foreign code or publish. They are never suggested for a misspelled option."""


@dataclass(frozen=True, eq=False)
class Verb:
    """A typed function that is registered as a command.

    Args:
        name: Name on the command line, such as `train elc`.
        group: Heading under which `layerwise --help` lists it.
        function: Function that was registered.
        help: Description from the docstring of the function.
        examples: Arguments of example commands.
        arguments: Arguments by name, except the reporter.
    """

    name: str
    group: str
    function: Callable[..., Any]
    help: str
    examples: tuple[str, ...]
    arguments: Mapping[str, Argument]

    @cached_property
    def keeps_run(self) -> bool:
        return {"run", "overwrite"} <= self.arguments.keys()

    def convert(self, options: Mapping[str, Any]) -> dict[str, Any]:
        values = {}
        for name, value in options.items():
            if name not in self.arguments:
                suggestion = near_matches(name, self.arguments, CONSEQUENTIAL)
                raise OptionError(f"{self.name} has no option {named(name)!r}; {suggestion}")
            values[name] = self.arguments[name].convert(value)
            self.arguments[name].check(values[name], spell(name))
        return values

    def given(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options that differ from their defaults, as plain values. Objects such as models are omitted."""
        plain = {name: _to_plain(value) for name, value in options.items() if name in self.listed}
        return {
            name: value
            for name, value in plain.items()
            if value is not _OPENED and value != _to_plain(self.arguments[name].default)
        }

    def name_of(self, key: str) -> str:
        """Return the name of an argument from a key in YAML, which can also be its flag, such as `plan` for `plans`."""
        flags = {each.flag.removeprefix("--").replace("-", "_"): name for name, each in self.arguments.items()}
        return key if key in self.arguments else flags.get(key, key)

    @cached_property
    def variadic(self) -> str:
        parameters = inspect.signature(self.function).parameters.values()
        return next((each.name for each in parameters if each.kind is each.VAR_POSITIONAL), "")

    @cached_property
    def listed(self) -> dict[str, Argument]:
        """Return the arguments that can be passed on the command line and in YAML."""
        return {name: each for name, each in self.arguments.items() if Trait.PYTHON not in each.marks}

    def __call__(self, **options: Any) -> VerbCall:
        with _spelled(self.arguments):
            converted = self.convert(options)
            for name, argument in self.arguments.items():
                if argument.is_required and name not in converted:
                    raise OptionError(f"{argument.flag} is required.")
        changed = {
            name: converted[name]
            for name, argument in self.arguments.items()
            if name in converted and converted[name] != argument.default
        }
        return VerbCall(self, changed)


VERBS: dict[str, Verb] = {}
"""Registered verbs by name. `load_verb` registers all verbs."""


@dataclass(frozen=True)
class VerbCall:
    verb: Verb
    options: Mapping[str, Any]

    def __getattr__(self, name: str) -> Any:
        if name in self.options:
            return self.options[name]
        if name in self.verb.arguments:
            return self.verb.arguments[name].default
        raise AttributeError(name)

    def call(self, reporter: Reporter | None = None) -> Any:
        options = dict(self.options)
        return self.verb.function(*options.pop(self.verb.variadic, ()), **options, reporter=reporter)


@dataclass
class Invocation:
    """A verb that is running. `began` is the value of `time.monotonic()` when it began."""

    verb: Verb
    options: Mapping[str, Any]
    reporter: Reporter
    began: float
    dry_run: bool = False


@dataclass(frozen=True)
class Caller:
    """The caller of a verb. If `in_flags`, messages name options as on the command line."""

    in_flags: bool = False
    dry_run: bool = False
    arguments: Mapping[str, Argument] | None = None


class StudyFinishedError(Exception):
    """Raised to end a verb early: after a dry run, if the run is complete, or in an additional training process."""

    def __init__(self, folder: Path) -> None:
        super().__init__(str(folder))
        self.folder = folder


_CALL: ContextVar[Invocation] = ContextVar("call")
_PYTHON = Caller()
_CALLER: ContextVar[Caller] = ContextVar("caller", default=_PYTHON)


def current_call() -> Invocation:
    return _CALL.get()


def current_command() -> str:
    """Return the command of the running verb as a user would type it."""
    call = current_call()
    return write_command(call.verb, call.options)


def write_command(verb: Verb, options: Mapping[str, Any]) -> str:
    """Return the command line that calls a verb. Options with their default values are omitted."""
    arguments, flags = [], []
    for name, value in verb.given(options).items():
        argument = verb.arguments[name]
        texts = [str(part) for part in (value if isinstance(value, list) else [value])]
        is_repeated = Trait.REPEATED in argument.marks
        if argument.is_positional:
            arguments += texts if is_repeated else [",".join(texts)]
        elif isinstance(value, bool):
            flags += [argument.flag if value else "--no-" + name.replace("_", "-")]
        else:
            flags += [word for text in (texts if is_repeated else [",".join(texts)]) for word in (argument.flag, text)]
    return shlex.join(["layerwise", *verb.name.split(), *arguments, *flags])


def load_verb(name: str) -> Verb:
    """Return the verb that has this name on the command line."""
    import_module("layerwise.catalogue")  # imports every study
    if name not in VERBS:
        raise OptionError(f"Unknown verb {name[:60]!r}; {near_matches(name, VERBS)}")
    return VERBS[name]


def verb(name: str, *, group: str = "", examples: Sequence[str] = ()) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Register a function as a command (verb). Its arguments are checked, and it reports to the terminal by default.

    Args:
        name: Name on the command line.
        group: Heading under which `layerwise --help` lists it. If it is empty, the verb is not on the command line.
        examples: Arguments of example commands.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)
        described = Verb(name, group, function, _description(function), tuple(examples), _arguments(function))

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            bound = signature.bind(*args, **kwargs)
            reporter: Any = bound.arguments.pop("reporter", None)
            with _spelled(described.arguments):
                values = described.convert(bound.arguments)
                if reporter is not None:
                    return _carry_out(described, function, values, reporter)
                from layerwise.runner.terminal import Terminal

                with Terminal() as terminal:
                    return _carry_out(described, function, values, terminal)

        object.__setattr__(described, "function", call)
        call.__verb__ = described  # type: ignore[attr-defined]
        if group:
            VERBS[name] = described
        return call

    return decorate


def _carry_out(verb: Verb, function: Callable[..., R], values: dict[str, Any], reporter: Reporter) -> R:
    caller = _CALLER.get()
    if verb.keeps_run:
        check_run_folder(values.get("run"))
    token = _CALL.set(Invocation(verb, values, reporter, time.monotonic(), caller.dry_run))
    try:
        return function(*values.pop(verb.variadic, ()), **values, reporter=reporter)
    except StudyFinishedError as finished:
        result: R = get_type_hints(function)["return"](finished.folder)
        return result
    finally:
        _CALL.reset(token)


def check_run_folder(folder: Path | None) -> None:
    candidates = () if folder is None else (folder, *folder.parents)
    first = next((path for path in candidates if path.exists()), None)
    if first is not None and not first.is_dir():
        raise RunError(f"--run must be a directory, got {folder} ({first} is a file). Choose another one.")


@contextmanager
def _spelled(arguments: Mapping[str, Argument]) -> Iterator[None]:
    token = _CALLER.set(replace(_CALLER.get(), arguments=arguments))
    try:
        yield
    except LayerwiseError as error:
        if not _CALLER.get().in_flags:
            error.args = (write_in_python(str(error)),)
        raise
    finally:
        _CALLER.reset(token)


@contextmanager
def from_command_line(dry_run: bool = False) -> Iterator[None]:
    """Call verbs as the command line does: messages name flags, and if `dry_run`, nothing is computed."""
    token = _CALLER.set(Caller(in_flags=True, dry_run=dry_run))
    try:
        yield
    finally:
        _CALLER.reset(token)


def spell(name: str) -> str:
    """Return an option as the caller writes it: `--max-length` on the command line, and `max_length` in Python."""
    caller = _CALLER.get()
    if not caller.in_flags:
        return name
    argument = (caller.arguments or {}).get(name)
    return "--" + name.replace("_", "-") if argument is None else argument.flag


def check_push(push: str | None, *, private: bool) -> None:
    if private and push is None:
        raise OptionError(f"{spell('private')} requires {spell('push')}. Pass the repo id.")
    if push is not None:
        from layerwise.checkpoint.push import check_repository

        check_repository(push)


def write_in_python(text: str) -> str:
    """Replace the flags in a message by Python names. Commands in backticks are not changed.

    Example:
        >>> write_in_python("Pass --max-length 9 or --no-similarity, or run `layerwise sweep demo --tokens 9`.")
        'Pass max_length 9 or similarity=False, or run `layerwise sweep demo --tokens 9`.'
    """

    def rename(match: re.Match[str]) -> str:
        if match["command"]:
            return match.group()
        name = match["flag"].replace("-", "_")
        return f"{name.removeprefix('no_')}=False" if name.startswith("no_") else name

    return re.sub(r"(?P<command>`layerwise [^`]*`)|--(?P<flag>[a-z][a-z]*(?:-[a-z]+)*)", rename, text)


def _description(function: Callable[..., Any]) -> str:
    parsed = parse_docstring(function.__doc__ or "", DocstringStyle.GOOGLE)
    return "\n\n".join(filter(None, (parsed.short_description, parsed.long_description)))


def _arguments(function: Callable[..., Any]) -> dict[str, Argument]:
    hints = get_type_hints(function, include_extras=True)
    helps = {
        each.arg_name: each.description or ""
        for each in parse_docstring(function.__doc__ or "", DocstringStyle.GOOGLE).params
    }
    arguments = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if name == "reporter":
            continue
        hint, marks = split_annotation(hints[name])
        is_variadic = parameter.kind is parameter.VAR_POSITIONAL
        is_positional = parameter.kind is not parameter.KEYWORD_ONLY and Trait.KEYWORD not in marks
        is_positional = is_positional or Trait.POSITIONAL in marks
        if is_variadic:
            hint, marks = Sequence[hint], [*marks, Trait.REPEATED]  # type: ignore[valid-type]
        arguments[name] = Argument(
            name=name,
            hint=hint,
            default=() if is_variadic else parameter.default,
            help=" ".join(helps.get(name, "").split()),
            metavar=next((mark.text for mark in marks if isinstance(mark, Metavar)), None),
            given_flag=next((mark.text for mark in marks if isinstance(mark, Flag)), None),
            bounds=next((mark for mark in marks if isinstance(mark, Range)), Range()),
            marks=frozenset(mark for mark in marks if isinstance(mark, Trait)),
            is_positional=is_positional,
        )
    return arguments


_OPENED = object()


def _to_plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, list | tuple):
        return [_to_plain(each) for each in value]
    return value if value is None or isinstance(value, str | int | float | bool) else _OPENED
