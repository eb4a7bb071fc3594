"""An option of an experiment: a dataclass field with help text and bounds, checked wherever a value comes from."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from types import NoneType, SimpleNamespace, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from layerwise.bounded import named
from layerwise.errors import OptionError, near_matches
from layerwise.runner.argument import Argument, Trait, alternatives, is_sequence_hint
from layerwise.runner.verb import Verb, VerbCall

LARGEST = 2**53
"""The largest whole number that an option takes: floats count no further."""

_WORDS: Mapping[type, str] = {
    int: "a whole number",
    float: "a number",
    str: "a text",
    Path: "a path",
    bool: "true or false",
}

CONSEQUENTIAL = frozenset({"overwrite", "trust_remote_code", "push"})
"""Options that discard results, run what others wrote, or publish: no near match of a misspelt name suggests them."""


SHARED: Mapping[str, str] = {
    "arm": "Take only the models of this arm.",
    "baseline": "Train the baseline too: in order, or uniformly.",
    "batch_size": "Examples in a step; in fine-tuning 32.",
    "batch_tokens": "Tokens in a batch; by default 4,096, in a sweep what the memory holds.",
    "budget": 'What a plan may cost: "layers=24", "ms=0.75x" or "bytes=0.8x".',
    "context": "Tokens of each text, or of each prompt, when timed.",
    "data": "Folder of the files of published suites.",
    "draws": "Random draws: of orders, or of merged models.",
    "dtype": "Weight dtype. `auto` uses the checkpoint's dtype (float32 on CPU).",
    "epochs": "Times that examples are read; in fine-tuning at most 10.",
    "learning_rate": "Peak learning rate; in fine-tuning 5e-5.",
    "learning_rates": "Learning rates to sweep, and beyond while the best is at an end; one alone is not swept.",
    "limit": "Examples, at most: images of a split, pairs of a paradigm, sentences of a task.",
    "max_length": "Longest text in tokens; by default 512, in a training 256, in fine-tuning 128.",
    "min_effect": "The smallest effect that counts, in nats per token.",
    "output": "File or folder to write.",
    "overwrite": "Replace the rows of the run.",
    "password": "Password of EWoK's archive.",
    "plan": "Plan to run; repeat for more.",
    "push": "Repository of the hub for the finished model and its card; of several models, how names begin.",
    "ray": "Address of a Ray cluster: local (on this machine), auto, or HOST:PORT; needs layerwise[ray].",
    "rounds": "Number of timing repetitions.",
    "seeds": "Repetitions, each with a seed of its own.",
    "size": "Size of the model: tiny, or as published.",
    "steps": "Optimizer steps of each training.",
    "suite": "Suites: pairs, blimp, supplement, ewok, glue, msgs, msgs-ours; to evaluate, files of pairs too.",
    "task_folder": "Folder of lm-eval task files.",
    "task_limit": "Questions of each benchmark, at most.",
    "tasks": "Tasks by name: of lm-eval, or to fine-tune on.",
    "text": "Text file, a folder of them, or hf:DATASET.",
    "tokens": "Score at most N tokens, spread over the documents, or all.",
    "token_file": "File with API keys, one per line; or set LAYERWISE_SWARM_TOKENS.",
    "tokenizer": "Tokenizer, if the model has none.",
    "trust_remote_code": "Run code that comes with the model.",
}
"""The help of an option by its name, for options that several verbs declare without one: each has it here once."""


@dataclass(frozen=True, slots=True)
class Option:
    """What is known of an option beside its name, its type and its default.

    Where `help` is empty, several verbs have the option, and its help is in `SHARED`.
    `least` and `most` bound numbers, and so do `above` and `below`, which are no values themselves. `metavar` stands
    for the value in a help text. A `positional` option is written without its flag on the command line. A `repeated`
    one takes one value each time it is given; other lists are separated by commas. `flag` replaces the flag that the
    name would give. With `is_location` the value may be a path, and is a text because it may be a name of the hub too.
    `empty` allows an empty text. A `rare` option is listed by `--help-all` alone. A `setting` has no flag: the command
    line has it as `--set NAME=VALUE`. `needs` says where the option is read (see `holds`); one of several is enough.
    """

    help: str
    metavar: str | None = None
    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None
    positional: bool = False
    repeated: bool = False
    flag: str | None = None
    is_location: bool = False
    empty: bool = False
    rare: bool = False
    setting: bool = False
    needs: str | tuple[str, ...] = ()


def option(default: Any = MISSING, help: str = "", **details: Any) -> Any:
    """A dataclass field that is an option; `details` are the other fields of `Option`."""
    return field(default=default, metadata={"option": Option(help, **details)})


def own_first(kind: type) -> tuple[str, ...]:
    own = kind.arguments if isinstance(kind, Verb) else vars(kind).get("__annotations__", {})
    return tuple(sorted(options_of(kind), key=lambda name: name not in own))


def options_of(config: type | object) -> dict[str, tuple[Field[Any], Option]]:
    if isinstance(config, VerbCall):
        config = config.verb
    if isinstance(config, Verb):
        return _options_of(config)
    return _options_of(config if isinstance(config, type) else type(config))


@cache
def _options_of(kind: type) -> dict[str, tuple[Field[Any], Option]]:
    if isinstance(kind, Verb):
        return {name: _as_option(argument) for name, argument in kind.listed.items()}
    results = {}
    for each in fields(kind):
        if "option" in each.metadata:
            known: Option = each.metadata["option"]
            results[each.name] = (each, known if known.help else replace(known, help=SHARED[each.name]))
    return results


def _as_option(argument: Argument) -> tuple[Any, Option]:
    default = MISSING if argument.is_required else argument.default
    marks = argument.marks
    made = Option(
        argument.help,
        argument.placeholder,
        argument.bounds.least,
        argument.bounds.most,
        argument.bounds.above,
        argument.bounds.below,
        positional=argument.is_positional,
        repeated=Trait.REPEATED in marks,
        flag=argument.given_flag,
        is_location=Trait.LOCATION in marks,
        empty=Trait.EMPTY in marks,
        rare=Trait.RARE in marks,
    )
    return SimpleNamespace(name=argument.name, default=default), made


def _as_tuple(hint: Any) -> Any:
    kinds: list[Any] = []
    for kind in alternatives(hint):
        inner: Any = get_args(kind)[0] if is_sequence_hint(kind) else None
        kinds.append(kind if inner is None else tuple.__class_getitem__((inner, ...)))
    return Union.__getitem__(tuple(kinds))


def settings_of(config: type | object) -> dict[str, Option]:
    return {name: each for name, (_, each) in options_of(config).items() if each.setting}


def flag_of(config: type | object, name: str) -> str:
    each = options_of(config)[name][1]
    if each.positional:
        return each.metavar or name.upper()
    if each.setting:
        return f"--set {name}"
    return each.flag or "--" + name.replace("_", "-")


def given_flag(config: type | object, name: str) -> str:
    if getattr(config, name, None) is False and not options_of(config)[name][1].setting:
        return "--no-" + name.replace("_", "-")
    return flag_of(config, name)


def holds(config: object, needs: str | tuple[str, ...]) -> bool:
    """Check whether one of `needs` holds: `tasks` is given; `method=greedy|evolve` is or contains one; `!` negates."""
    return any(_is_so(config, need) for need in ((needs,) if isinstance(needs, str) else needs))


def _is_so(config: object, need: str) -> bool:
    name, equals, values = need.removeprefix("!").partition("=")
    value = getattr(config, name)
    parts = value if isinstance(value, tuple) else (value,)
    is_so = any(str(part) in values.split("|") for part in parts) if equals else value not in (None, (), False)
    return is_so != need.startswith("!")


def needed(config: type | object, needs: str | tuple[str, ...]) -> str:
    """`needs` in words, behind "is read"."""
    needs = (needs,) if isinstance(needs, str) else needs
    words = []
    for need in needs:
        name, _, values = need.removeprefix("!").partition("=")
        words.append(f"{flag_of(config, name)} {values.replace('|', ' or ')}".strip())
    return f"{'without' if needs[0].startswith('!') else 'with'} {' or '.join(words)}"


def given_options(config: object) -> dict[str, Any]:
    return {
        name: getattr(config, name)
        for name, (each, _) in options_of(config).items()
        if each.default is MISSING or getattr(config, name) != each.default
    }


def check_options(config: object) -> None:
    """Check the value of every option. Raises `OptionError` for one of another type or out of bounds."""
    kind: Any = type(config)
    hints = _hints(kind)
    for name, (_, each) in options_of(config).items():
        value, flag = getattr(config, name), flag_of(config, name)
        _check_text(flag, value, each)  # before its type, whose refusal would list the choices
        _check_type(flag, value, hints[name])
        for part in value if isinstance(value, tuple) else (value,):
            _check_value(flag, part, each)


def configured(kind: type, content: Mapping[str, Any], where: str) -> Any:
    """Return the configuration `kind` from plain values, as YAML and JSON have them; `where` is named in errors.

    Raises what `converted` raises, and `OptionError` for a wrong type.
    """
    return kind(**converted(kind, content, where))


def converted(kind: type, content: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Convert plain values to the options of `kind`: strings to paths, lists to tuples, integers to floats.

    Raises `OptionError` for an unknown or missing name.
    """
    content = {str(name).replace("-", "_"): value for name, value in content.items()}
    if isinstance(kind, Verb):
        content = {kind.name_of(name): value for name, value in content.items()}
    check_names(kind, content, f"{where}: ")
    hints, options = _hints(kind), options_of(kind)
    values = {name: _as_type(value, hints.get(name)) for name, value in content.items()}
    missing = [
        flag_of(kind, name) for name, (each, _) in options.items() if each.default is MISSING and name not in values
    ]
    if missing:
        raise OptionError(f"{where}: {' and '.join(missing)} must be given")
    return values


@cache
def _hints(kind: Any) -> dict[str, Any]:
    if isinstance(kind, Verb):
        return {name: _as_tuple(argument.hint) for name, argument in kind.arguments.items()}
    return get_type_hints(kind)


def check_names(kind: type, names: Iterable[str], where: str = "") -> None:
    options = options_of(kind)
    for name in names:
        if name not in options:
            raise OptionError(
                f"{where}there is no option {named(name)!r}; {near_matches(name, options, CONSEQUENTIAL)}"
            )


def choices_of(kind: type, name: str) -> tuple[str, ...]:
    return tuple(map(str, _choices(_hints(kind)[name])))


def is_switch(kind: type, name: str) -> bool:
    return name in options_of(kind) and bool in _alternatives(_hints(kind)[name])


def from_text(kind: type, name: str, texts: Sequence[str]) -> Any:
    """Parse an option from command-line words, several if it is repeated; raises `OptionError` if unreadable."""
    each, flag, hint = options_of(kind)[name][1], flag_of(kind, name), _hints(kind)[name]
    for part in _alternatives(hint):
        if get_origin(part) is tuple:
            element = get_args(part)[:1]
            return tuple(_scalar(flag, text, element) for text in (texts if each.repeated else split_commas(texts)))
    return _scalar(flag, texts[-1], _alternatives(hint))


def _scalar(flag: str, text: str, kinds: tuple[Any, ...]) -> Any:
    readers: Mapping[Any, Any] = {int: int, float: float, bool: _switch}
    for kind in kinds:
        if get_origin(kind) is Literal and text in get_args(kind):
            return text
    for kind in kinds:
        if kind in readers:
            try:
                return readers[kind](text)
            except ValueError as error:
                raise OptionError(f"{flag} takes {_WORDS[kind]}; found {named(repr(text))}") from error
    return path_of(flag, text) if Path in kinds else text


def path_of(flag: str, text: str) -> Path:
    _check_text(flag, text, Option(""))
    check_location(flag, text)
    return Path(text)


def _switch(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


def split_settings(kind: type, texts: Sequence[str]) -> dict[str, Any]:
    """Return the options that `--set NAME=VALUE` names; other names stay in the option `set`.

    Raises `OptionError` for another form, and for an unknown name.
    """
    settings, values = settings_of(kind), {}
    others: list[str] = []
    given: dict[str, list[str]] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip().replace("-", "_")
        if equals and name in settings:
            given.setdefault(name, []).append(value)
        elif "set" in options_of(kind):
            others.append(text)
        elif not equals:
            example = f"{next(iter(settings))}=VALUE"
            raise OptionError(f"--set takes NAME=VALUE, as in --set {example}; found {named(repr(text))}")
        else:
            raise OptionError(f"there is no setting {named(repr(name))}; {near_matches(name, settings)}")
    for name, several in given.items():
        values[name] = from_text(kind, name, several)
    return {**values, "set": tuple(others)} if others else values


def plain(config: object) -> dict[str, Any]:
    return {name: _plain(value) for name, value in given_options(config).items()}


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


def _as_type(value: Any, hint: Any) -> Any:
    kinds = _alternatives(hint)
    if isinstance(value, list) and any(get_origin(kind) is tuple for kind in kinds):
        (element,) = (get_args(kind)[0] for kind in kinds if get_origin(kind) is tuple)
        return tuple(_as_type(each, element) for each in value)
    if isinstance(value, str) and Path in kinds and str not in kinds:
        return Path(value)
    if isinstance(value, int) and not isinstance(value, bool) and float in kinds and int not in kinds:
        return float(value)
    return value


def _alternatives(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _check_type(flag: str, value: Any, hint: Any) -> None:
    if not any(_is(value, kind) for kind in _alternatives(hint)):
        near = get_close_matches(str(value), [str(each) for each in _choices(hint)], n=1)
        meant = f"; did you mean {near[0]}?" if near else ""
        raise OptionError(f"{flag} takes {_in_words(hint)}; found {named(repr(value))}{meant}")


def _choices(hint: Any) -> tuple[Any, ...]:
    return tuple(each for kind in _alternatives(hint) if get_origin(kind) is Literal for each in get_args(kind))


def _is(value: Any, kind: Any) -> bool:
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    if get_origin(kind) is tuple:
        return isinstance(value, tuple) and all(_is(each, get_args(kind)[0]) for each in value)
    if kind in (int, float) and isinstance(value, bool):
        return False
    return isinstance(value, (int, float) if kind is float else kind)


def _in_words(hint: Any) -> str:
    texts: list[str] = []
    for kind in _alternatives(hint):
        if get_origin(kind) is Literal:
            choices = [str(each) for each in get_args(kind)]
            texts.append(choices[0] if len(choices) == 1 else "one of " + ", ".join(choices))
        elif get_origin(kind) is tuple:
            texts.append("a list")
        elif kind is not NoneType:
            texts.append(_WORDS.get(kind, str(kind)))
    return " or ".join(texts)


def _check_value(flag: str, value: object, option: Option) -> None:
    if isinstance(value, bool):
        return
    if isinstance(value, float) and not math.isfinite(value):
        raise OptionError(f"{flag} takes a finite number, and {value} was given")
    if isinstance(value, int | float):
        _check_bounds(flag, value, option)
    _check_text(flag, value, option)
    if isinstance(value, Path) or (option.is_location and isinstance(value, str)):
        check_location(flag, value)


def _check_text(flag: str, value: object, option: Option) -> None:
    if value == "" and not option.empty:
        raise OptionError(f"{flag} was given an empty text; write what it is about, or leave it out")


def _check_bounds(flag: str, value: float, option: Option) -> None:
    if abs(value) > LARGEST:
        raise OptionError(f"{flag} takes a number up to {LARGEST:,}, and a larger one was given")
    bounds = (
        (option.least, "from", operator.ge),
        (option.above, "above", operator.gt),
        (option.most, "up to", operator.le),
        (option.below, "below", operator.lt),
    )
    given = [(bound, word, holds) for bound, word, holds in bounds if bound is not None]
    if not all(holds(value, bound) for bound, _, holds in given):
        words = " and ".join(f"{word} {bound:,}" for bound, word, _ in given).replace(" and up to", " up to")
        raise OptionError(f"{flag} takes a number {words}; found {value:,}")


def check_location(flag: str, location: str | Path) -> None:
    if "\0" in str(location):
        raise OptionError(f"{flag} was given {named(str(location))}, a path with a null byte; write another path")
    try:
        Path(location).expanduser().exists()
    except (OSError, RuntimeError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise OptionError(
            f"{flag} was given {named(str(location))}, which cannot be looked up ({reason}); write another path"
        ) from error


def split_commas(text: str | Iterable[str]) -> tuple[str, ...]:
    """Names that are separated by commas.

    >>> split_commas("painters, leave_one_out")
    ('painters', 'leave_one_out')
    """
    texts = (text,) if isinstance(text, str) else text
    return tuple(part.strip() for each in texts for part in each.split(",") if part.strip())
