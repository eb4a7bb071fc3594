"""HTML that escapes itself, because names in a report are user input.

`element` escapes every child and attribute unless it already is `Safe`; `escaped` does so for Markdown.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from html import escape

VOID = frozenset({"meta", "input", "br", "hr", "col"})


class Safe(str):
    """Text that is HTML already, made by `element`, `join` or a file of this package."""

    __slots__ = ()


def join(children: Iterable[str]) -> Safe:
    """Children one after another, each escaped unless it is `Safe`.

    >>> join(["a < b", Safe("<br>")])
    'a &lt; b<br>'
    """
    return Safe("".join(child if isinstance(child, Safe) else escape(child) for child in children))


def element(name: str, /, *children: str, **attributes: str | bool | None) -> Safe:
    """Return an HTML element; attribute names lose a trailing underscore, and inner ones become hyphens.

    `None` and `False` leave an attribute out; `True` writes it without a value.

    >>> element("p", "1 < 2", class_="note", data_task="a & b")
    '<p class="note" data-task="a &amp; b">1 &lt; 2</p>'
    """
    shown = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in VOID:
        return Safe(f"<{name}{shown}>")
    return Safe(f"<{name}{shown}>{join(children)}</{name}>")


def _attribute(key: str, value: str | bool | None) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape(value, quote=True)}"'


def measured(text: str) -> Safe:
    """A number with its interval behind it, smaller; a number alone stays as it is.

    >>> measured("0.41 [0.38, 0.45]")
    '<span class="measured"><b>0.41</b> <small>[0.38, 0.45]</small></span>'
    """
    value, bracket, interval = text.partition(" [")
    inner = (element("small", f"[{interval}"),) if bracket else ()
    return element("span", element("b", value), *((" ", *inner) if inner else ()), class_="measured")


def embedded_json(name: str, value: object) -> Safe:
    try:
        text = _strict(value)
    except ValueError:  # a number that is not finite; most pages have none, and need no copy without them
        text = _strict(_finite(value))
    body = Safe(text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029"))
    return element("script", body, type="application/json", id=name)


def _strict(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _finite(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return value


_INERT = tuple(
    (re.compile(pattern), instead)
    for pattern, instead in (
        (r"&(?=#?\w+;)", "&amp;"),
        (r"<(?=[A-Za-z/!?])", "&lt;"),
        (r"(?<=\w):(?=//)", "&#58;"),
        (r"(?i)\b(www)\.", r"\1&#46;"),
        (r"([\\`*_|~]|\](?=[(\[]))", r"\\\1"),
    )
)


def escaped(text: str) -> str:
    """Escape text for a Markdown line or cell; entities undo tags, since backslashes do not work everywhere.

    >>> print(escaped("0 (1|2)*3 <b> [a](b)"))
    0 (1\\|2)\\*3 &lt;b> [a\\](b)
    """
    plain = "".join(sign if sign.isprintable() else "\ufffd" for sign in " ".join(text.split()))
    for pattern, instead in _INERT:
        plain = pattern.sub(instead, plain)
    return plain


def bullets(sentences: Iterable[str]) -> str:
    return "\n".join(f"- {escaped(sentence)}" for sentence in sentences)
