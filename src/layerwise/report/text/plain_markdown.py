"""Markdown in which what users named stays text."""

from __future__ import annotations

import re
from collections.abc import Iterable

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
"""What would begin a tag, an entity, a link or other markup, and what stands there instead."""


def escaped(text: str) -> str:
    """Text as it stands, whatever Markdown would make of it: in a line and a cell, without markup, links or entities.

    A tag and an entity are undone by an entity, since not every reader of Markdown takes a backslash before them.

    >>> print(escaped("0 (1|2)*3 <b> [a](b)"))
    0 (1\\|2)\\*3 &lt;b> [a\\](b)
    """
    plain = "".join(sign if sign.isprintable() else "\ufffd" for sign in " ".join(text.split()))
    for pattern, instead in _INERT:
        plain = pattern.sub(instead, plain)
    return plain


def bullets(sentences: Iterable[str]) -> str:
    """Sentences as a list."""
    return "\n".join(f"- {escaped(sentence)}" for sentence in sentences)
