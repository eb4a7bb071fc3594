"""An option of an experiment: a dataclass field with its help text and its bounds.

The command line, a YAML file and Python all read these: the field is the one home of the option. Values are checked
when the configuration is made, wherever they come from.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from layerwise.bounded import named
from layerwise.errors import OptionError, near_matches
from layerwise.experiments.preset import PRESET, with_preset

LARGEST = 2**53
"""The largest whole number that an option takes: floats count no further."""

CONSEQUENTIAL = frozenset({"overwrite", "trust_remote_code", "push"})
"""Options that discard results, run what others wrote, or publish: no near match of a misspelt name suggests them."""


@dataclass(frozen=True, slots=True)
class Option:
    """What is known of an option beside its name, its type and its default.

    `least` and `most` bound numbers. `metavar` stands for the value in a help text. A `positional` option is written
    without its flag on the command line. A `repeated` one takes one value each time it is given; other lists are
    separated by commas. `flag` replaces the flag that the name would give. With `is_location` the value
    may be a path, and is a text because it may be a name of the hub too. `empty` allows an empty text.
    """

    help: str
    metavar: str | None = None
    least: float | None = None
    most: float | None = None
    positional: bool = False
    repeated: bool = False
    flag: str | None = None
    is_location: bool = False
    empty: bool = False


def option(default: Any = MISSING, help: str = "", **details: Any) -> Any:
    """A dataclass field that is an option; `details` are the other fields of `Option`."""
    return field(default=default, metadata={"option": Option(help, **details)})


def options_of(config: type | object) -> dict[str, tuple[Field[Any], Option]]:
    """The options of a configuration, or of its class, by name, in the order of its fields."""
    results = {}
    for each in fields(config):  # type: ignore[arg-type]
        if "option" in each.metadata:
            results[each.name] = (each, each.metadata["option"])
    return results


def flag_of(config: type | object, name: str) -> str:
    """How an option is written on the command line: its flag, or its capitals where it has none."""
    each = options_of(config)[name][1]
    if each.positional:
        return each.metavar or name.upper()
    return each.flag or "--" + name.replace("_", "-")


def given_flag(config: type | object, name: str) -> str:
    """How an option that was given is written: as `flag_of` says, or `--no-...` where it was turned off."""
    if getattr(config, name, None) is False:
        return "--no-" + name.replace("_", "-")
    return flag_of(config, name)


def given_options(config: object) -> dict[str, Any]:
    """The options of a configuration that differ from their defaults, by name."""
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
    """The configuration of class `kind` from plain values, as YAML and JSON have them; `where` is named in refusals.

    Texts become paths where a path is wanted, lists become tuples and whole numbers become floats. The settings of a
    `preset` stand where `content` says nothing else. Raises `OptionError` for a name that is no option, for one that
    is missing, and for a value of another type.
    """
    content = {str(name).replace("-", "_"): value for name, value in content.items()}
    check_names(kind, content.keys() - {PRESET}, f"{where}: ")
    hints, options = _hints(kind), options_of(kind)
    values = with_preset(kind, {name: _as_type(value, hints.get(name)) for name, value in content.items()})
    missing = [
        flag_of(kind, name)
        for name, (each, _) in options.items()
        if each.default is MISSING and name not in values
    ]  # fmt: skip
    if missing:
        raise OptionError(f"{where}: {' and '.join(missing)} must be given")
    return kind(**values)


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def check_names(kind: type, names: Iterable[str], where: str = "") -> None:
    """Raise `OptionError` for a name that is no option of the configuration class `kind`."""
    options = options_of(kind)
    for name in names:
        if name not in options:
            raise OptionError(
                f"{where}there is no option {named(name)!r}; {near_matches(name, options, CONSEQUENTIAL)}"
            )


def plain(config: object) -> dict[str, Any]:
    """The options that differ from their defaults as plain values, as YAML and JSON have them."""
    return {name: _plain(value) for name, value in given_options(config).items()}


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


def _as_type(value: Any, hint: Any) -> Any:
    """`value` as `hint` wants it, where plain values have another type; anything else as it is."""
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
    words = {int: "a whole number", float: "a number", str: "a text", Path: "a path", bool: "true or false"}
    texts: list[str] = []
    for kind in _alternatives(hint):
        if get_origin(kind) is Literal:
            texts.append("one of " + ", ".join(map(str, get_args(kind))))
        elif get_origin(kind) is tuple:
            texts.append("a list")
        elif kind is not NoneType:
            texts.append(words.get(kind, str(kind)))
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
    if (option.least is not None and value < option.least) or (option.most is not None and value > option.most):
        low = "" if option.least is None else f" from {option.least:,}"
        high = "" if option.most is None else f" up to {option.most:,}"
        raise OptionError(f"{flag} takes a number{low}{high}; found {value:,}")


def check_location(flag: str, location: str | Path) -> None:
    """Raise `OptionError` for a path that the system cannot look up, wherever it leads."""
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
