"""HTML from templates that escape all values, and escaping for Markdown."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup


@cache
def _templates() -> Environment:
    loader = PackageLoader("layerwise.page", "templates")
    return Environment(
        loader=loader,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
    )


def html_page(**values: object) -> str:
    return _templates().get_template("page.html").render(**values)


def html_part(name: str, **values: object) -> Markup:
    """Render the macro `name` of `templates/parts.html`.

    >>> html_part("measured", text="0.41 [0.38, 0.45]")
    Markup('<span class="measured"><b>0.41</b> <small>[0.38, 0.45]</small></span>')
    >>> html_part("measured", text="<b>")
    Markup('<span class="measured"><b>&lt;b&gt;</b></span>')
    """
    return Markup(getattr(_templates().get_template("parts.html").module, name)(**values))


def embedded_json(value: object) -> Markup:
    """Return JSON that is safe in a script element."""
    try:
        text = _strict(value)
    except ValueError:  # a non-finite number, which is rare
        text = _strict(_finite(value))
    return Markup(text.replace("<", "\\u003c"))


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


def escape_markdown(text: str) -> str:
    r"""Escape text for a line or a table cell in Markdown.

    >>> print(escape_markdown("0 (1|2)*3 <b> [a](b)"))
    0 (1\|2)\*3 &lt;b> [a\](b)
    """
    plain = "".join(sign if sign.isprintable() else "\ufffd" for sign in " ".join(text.split()))
    for pattern, instead in _INERT:
        plain = pattern.sub(instead, plain)
    return plain


def format_bullets(sentences: Iterable[str]) -> str:
    return "\n".join(f"- {escape_markdown(sentence)}" for sentence in sentences)
