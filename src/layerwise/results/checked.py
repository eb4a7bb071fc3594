"""Convert JSON and table rows to frozen dataclasses, with readable error messages.

Files of a run may have been edited or truncated. `msgspec` checks the types and bounds that are annotated in a
dataclass. In addition, numbers must be finite, integers must fit into 64 bits, and text must be Unicode.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

import msgspec

from layerwise.bounded import UnreadableError, named, parse_json, read_json
from layerwise.errors import RunError
from layerwise.results.rows import Loss, Note, PlanRecord, Score, describe_row

Value = TypeVar("Value")
Row = TypeVar("Row", Loss, Score, PlanRecord, Note)

MAX_DEPTH = 32
"""Maximum nesting depth of a JSON file. A training recipe has 7 levels."""

_COLUMNS: Mapping[type, tuple[str, ...]] = {
    kind: tuple(item.name for item in fields(kind)) for kind in (Loss, Score, PlanRecord, Note)
}
_MAX_SHOWN = 40  # characters of a value in a message
_RESTORE = "Restore the file from a copy, or choose another folder."
_WORDS = {
    "str": "a string",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "null": "null",
    "bytes": "raw bytes",
    "array": "a list",
    "object": "an object",
}
_BOUNDS = {">=": "at least", "<=": "at most"}
_TYPE = re.compile(r"Expected `(\w+)((?: \| \w+)*)`, got `(\w+)`")
_BOUND = re.compile(r"Expected `(\w+)(?: \| null)?` (>=|<=) (\S+)")


def read_json_file(path: Path) -> Any:
    """Read a JSON file. Raise `FileNotFoundError` or `NotADirectoryError` if there is none, otherwise `RunError`."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError:
        pass  # explained below
    try:
        return read_json(path)
    except UnreadableError as error:
        raise RunError(f"{named(path)} {error}. {_RESTORE}") from error


def parse_json_text(text: str, what: str) -> Any:
    """Parse JSON. Error messages call the text `what`."""
    try:
        return parse_json(text)
    except UnreadableError as error:
        raise RunError(f"{what} {error}. {_RESTORE}") from error


def to_dataclass(kind: type[Value], content: object, what: str, *, whole: bool = False) -> Value:
    """Convert parsed JSON to the frozen dataclass `kind`. Error messages call the content `what`.

    Lists become tuples, and nested objects become the annotated classes. If `whole`, fields with a default are
    required, too.
    """
    if not isinstance(content, dict):
        raise RunError(f"{what} must be an object, got {_shown(content)}. {_RESTORE}")
    known_fields = {item.name: item for item in fields(kind)}  # type: ignore[arg-type]
    needed = {name for name, item in known_fields.items() if whole or item.default is item.default_factory is MISSING}
    missing, surplus = (
        sorted(needed - set(content)),
        sorted(name[:_MAX_SHOWN] for name in set(content) - set(known_fields)),
    )
    if missing or surplus:
        raise RunError(
            f"{what} does not have the expected fields: missing {missing}, unknown {surplus[:5]}. {_RESTORE}"
        )
    try:
        for name, value in content.items():
            _check_usable(value, f"{name} in {what}")
        return msgspec.convert(content, kind)
    except msgspec.ValidationError as error:
        raise RunError(f"{_explained(error, kind, content, f'in {what}')}. {_RESTORE}") from error
    except UnreadableError as error:
        raise RunError(f"{error}. {_RESTORE}") from error


def to_row(kind: type[Row], cells: Sequence[object]) -> Row:
    """Convert the cells of a table row to `kind`, or raise `ValueError` with the name of the invalid cell."""
    content = dict(zip(_COLUMNS[kind], cells, strict=True))
    try:
        row = msgspec.convert(content, kind)
    except msgspec.ValidationError as error:
        raise ValueError(_explained(error, kind, content, f"of {describe_row(kind, content)}")) from error
    if isinstance(row, Loss) and row.hits > row.tokens:
        raise ValueError(f"{describe_row(kind, content)} has {row.hits} hits among {row.tokens} tokens")
    return row


def _check_usable(value: object, where: str, depth: int = 1) -> None:
    if depth > MAX_DEPTH:
        raise UnreadableError(f"{where} is nested too deeply")
    match value:
        case dict():
            for name, each in value.items():
                _check_usable(name, where)
                _check_usable(each, where, depth + 1)
        case list():
            for each in value:
                _check_usable(each, where, depth + 1)
        case str():
            try:
                value.encode()
            except UnicodeEncodeError as error:
                raise UnreadableError(f"{where} must be Unicode text") from error
        case int() if not -(2**63) <= value < 2**63:
            raise UnreadableError(f"{where} must fit 64 bits")
        case float() if not math.isfinite(value):
            raise UnreadableError(f"{where} must be finite")


def _explained(error: msgspec.ValidationError, kind: Any, content: Mapping[str, object], context: str) -> str:
    why, _, location = str(error).partition(" - at `")
    is_key = location.startswith("key in ")
    path = location.removesuffix("`").removeprefix("key in ").removeprefix("$").removeprefix(".")
    type_wrong, bound_wrong = _TYPE.fullmatch(why), _BOUND.fullmatch(why)
    path, value = _at(content, path, type_wrong[3] if type_wrong else None)
    where = f"{f'a name in {path}' if is_key else path} {context}"
    if type_wrong:
        empty = " or null" if type_wrong[2] else ""
        return f"{where} must be {_WORDS.get(type_wrong[1], type_wrong[1])}{empty}, got {_shown(value)}"
    if bound_wrong:
        if isinstance(value, float) and not math.isfinite(value):
            return f"{where} must be finite, got {value}"
        bound = f"{_BOUNDS[bound_wrong[2]]} {bound_wrong[3]}"
        return f"{where} must be {_WORDS[bound_wrong[1]]} of {bound}, got {_shown(value)}"
    if why.startswith("Invalid enum value"):
        options = ", ".join(map(str, get_args(get_type_hints(kind).get(path, None))))
        return f"{where} must be one of {options or 'its values'}, got {_shown(value)}"
    if missing := re.fullmatch("Object missing required field `(.*)`", why):
        return f"{where} does not have the expected fields: missing {[missing[1]]}"
    return f"{where} cannot be used: {why[:1].lower()}{why[1:]}"


def _at(content: Any, path: str, kind: str | None) -> tuple[str, object]:
    """Return the location of an error and the value there.

    If `path` contains `[...]`, which `msgspec` writes for any value of a mapping, the first value of type `kind` is
    used.
    """
    names = []
    for name, index in re.findall(r"([^.\[\]]+)|\[(\d+|\.\.\.)\]", path):
        step = name or (int(index) if index != "..." else next(n for n, each in content.items() if _type(each) == kind))
        names.append(f".{name}" if name else f"[{step if isinstance(step, int) else repr(step[:_MAX_SHOWN])}]")
        content = content[step]
    return "".join(names).removeprefix("."), content


def _type(value: object) -> str:
    name = type(value).__name__
    return {"NoneType": "null", "list": "array", "dict": "object"}.get(name, name)


def _shown(value: object) -> str:
    words = _WORDS[_type(value)]
    if isinstance(value, list | dict | bytes):
        return words
    text = json.dumps(value)
    return text if len(text) <= _MAX_SHOWN else f"{words} ({text[: _MAX_SHOWN - 3]}...)"
