"""JSON as the frozen values it was written from: every field is there, of its type, and of a size that can be used.

What a run folder holds was written by layerwise, and may have been edited, cut short or made by another program since.
`read` and `value_of` therefore say what is wrong in a sentence before anything is made of it. They accept less than
JSON allows: no number that is not finite, no integer beyond 64 bits, no text that is not Unicode.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from layerwise.bounded import Unreadable, named, parse_json, read_json
from layerwise.errors import RunError

Value = TypeVar("Value")

DEEPEST = 32
"""Levels of the deepest nesting that is read; a recipe with its schedule has 7."""

_WORDS = {str: "a text", int: "a whole number", float: "a number", bool: "true or false", NoneType: "null"}
_RESTORE = "Restore it, or choose another folder."


def read(path: Path) -> Any:
    """The JSON in the file at `path`.

    Raises `RunError` for what is no file, for one that cannot be read or is too large, and for what is not JSON;
    `FileNotFoundError` and `NotADirectoryError` are left to the caller, who knows what the file is for.
    """
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError:
        pass  # what else is wrong with it is said below
    try:
        return _shallow(read_json(path))
    except Unreadable as error:
        raise RunError(f"{named(path)} {error}. {_RESTORE}") from error


def parse(text: str, what: str) -> Any:
    """The JSON `text`; `what` is what a refusal calls it. Raises `RunError` for what is not JSON or cannot be used."""
    try:
        return _shallow(parse_json(text))
    except Unreadable as error:
        raise RunError(f"{what} {error}. {_RESTORE}") from error


def _shallow(value: Any) -> Any:
    if _depth(value) > DEEPEST:
        raise Unreadable("is nested too deeply: write it flatter")
    return value


def value_of(kind: type[Value], content: object, what: str, *, whole: bool = False) -> Value:
    """The frozen dataclass `kind` with the fields that `content` holds; `what` is what a refusal calls it.

    Lists become tuples and objects become the dataclasses that the annotations name. What has a default may be left
    out unless `whole` is asked for. Raises `RunError` for what is no
    object, for fields that are missing or unknown, and for the first one of another type.
    """
    if not isinstance(content, dict):
        raise RunError(f"{what} is {_kind_of(content)} and not an object of fields. {_RESTORE}")
    assert is_dataclass(kind), "fields are those of a dataclass"
    known = {item.name: item for item in fields(kind)}
    needed = {
        name for name, item in known.items() if whole or (item.default is MISSING and item.default_factory is MISSING)
    }
    missing, surplus = sorted(needed - set(content)), sorted(name[:40] for name in set(content) - set(known))
    if missing or surplus:
        raise RunError(
            f"{what} does not have the expected fields: missing {missing}, unknown {surplus[:5]}. {_RESTORE}"
        )
    hints = _hints(kind)
    return kind(**{name: _value(hints[name], value, f"{name} in {what}") for name, value in content.items()})


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _depth(value: object) -> int:
    """How many lists and objects stand in one another."""
    depth, layer = 0, [value]
    while layer and depth <= DEEPEST:
        depth += 1
        nested = (each.values() if isinstance(each, dict) else each for each in layer if isinstance(each, list | dict))
        layer = [inner for values in nested for inner in values]
    return depth


def _value(hint: Any, value: object, where: str) -> Any:
    """`value` as the annotation `hint` has it. Raises `RunError` for another type."""
    if hint is Any:
        return _anything(value, where)
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        if value is None and NoneType in inner:
            return None
        (hint,) = (option for option in inner if option is not NoneType)
        return _value(hint, value, where)
    if origin is Literal and isinstance(value, str):
        if value in inner:
            return value
        raise RunError(f"{where} is {value[:40]!r}, which is none of {', '.join(inner)}. {_RESTORE}")
    if origin is tuple and isinstance(value, list):
        return tuple(_value(inner[0], each, where) for each in value)
    if isinstance(origin, type) and issubclass(origin, Mapping) and isinstance(value, dict):
        return {_text(name, where): _value(inner[1], each, where) for name, each in value.items()}
    if is_dataclass(hint) and isinstance(hint, type):
        return value_of(hint, value, where)
    return _plain(hint, value, where)


def _plain(hint: Any, value: object, where: str) -> object:
    if hint is str and isinstance(value, str):
        return _text(value, where)
    if hint is bool and isinstance(value, bool):
        return value
    if isinstance(value, int) and not isinstance(value, bool) and hint in (int, float):
        return hint(_whole(value, where))
    if hint is float and isinstance(value, float) and math.isfinite(value):
        return value
    wanted = _WORDS.get(hint) or ("a list" if get_origin(hint) is tuple else "an object")
    raise RunError(f"{where} is {_kind_of(value)} where {wanted} belongs. {_RESTORE}")


def _anything(value: object, where: str) -> object:
    """Any JSON, as it is, as long as it can be written again."""
    if isinstance(value, list):
        return [_anything(each, where) for each in value]
    if isinstance(value, dict):
        return {_text(name, where): _anything(each, where) for name, each in value.items()}
    return value if value is None else _plain(type(value), value, where)


def _text(value: str, where: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise RunError(f"{where} is a text that is not Unicode. {_RESTORE}") from error
    return value


def _whole(value: int, where: str) -> int:
    if not -(2**63) <= value < 2**63:
        raise RunError(f"{where} is a number of more than 64 bits. {_RESTORE}")
    return value


def _kind_of(value: object) -> str:
    """What JSON value this is, in words, the value itself where it is short."""
    if isinstance(value, float) and not math.isfinite(value):
        return "not a finite number"
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    shown = json.dumps(value)
    return shown if len(shown) <= 40 else f"{_WORDS[type(value)]} ({shown[:37]}...)"
