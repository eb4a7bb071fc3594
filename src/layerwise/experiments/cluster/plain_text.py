"""Plain values as text that travels between processes, to the bit: JSON, with tuples, dicts and bytes named as such."""

from __future__ import annotations

import base64
import json
from typing import Any

from layerwise.measure.workers import Plain

_KIND = "kind"


def written(value: Plain) -> bytes:
    """A value as text.

    >>> read(written({"loss": [0.1, (2, None)], "row": b"ab"}))
    {'loss': [0.1, (2, None)], 'row': b'ab'}
    """
    return json.dumps(_named(value)).encode()


def read(text: bytes) -> Plain:
    """The value that `written` made this text of."""
    return _value(json.loads(text))


def _named(value: Plain) -> Any:
    if isinstance(value, dict):
        return {_KIND: "dict", "of": {name: _named(each) for name, each in value.items()}}
    if isinstance(value, tuple):
        return {_KIND: "tuple", "of": [_named(each) for each in value]}
    if isinstance(value, bytes):
        return {_KIND: "bytes", "of": base64.b64encode(value).decode()}
    return [_named(each) for each in value] if isinstance(value, list) else value


def _value(named: Any) -> Plain:
    if isinstance(named, list):
        return [_value(each) for each in named]
    if not isinstance(named, dict):
        return named
    content = named["of"]
    if named[_KIND] == "dict":
        return {name: _value(each) for name, each in content.items()}
    return base64.b64decode(content) if named[_KIND] == "bytes" else tuple(_value(each) for each in content)
