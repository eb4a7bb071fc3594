"""Extract the parts of a page that are compared: the numbers of its figures, and its visible text."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from html.parser import HTMLParser
from typing import Any

AXES = ("x", "y", "z")
ERRORS = ("error_x", "error_y")
REACHES = ("array", "arrayminus")
DIGITS = 12
"""Significant digits of a number, since sums in another order differ in later digits."""
LONGEST = 60
"""Maximum length of an array that is written out; a longer one is replaced by its shape and a hash."""

BLOCK_NAMES = (
    "address article aside blockquote body button caption dd details div dl dt fieldset figcaption figure footer form",
    "h1 h2 h3 h4 h5 h6 header hr label legend li main nav ol option p pre section select summary table tbody tfoot",
    "thead tr ul",
)
BLOCKS = frozenset(name for line in BLOCK_NAMES for name in line.split())
CELLS = frozenset(("td", "th"))
UNSEEN = frozenset(("head", "script", "style", "svg"))


def comparable_trace(trace: Mapping[str, Any], layout: Mapping[str, Any]) -> dict[str, object]:
    """Return the kind, name and numbers of a Plotly trace, without colors, sizes and hover text.

    A position that has a name on its axis, such as a plan, is replaced by that name.
    """
    found: dict[str, object] = {name: trace[name] for name in ("type", "name") if name in trace}
    for axis in AXES:
        if axis in trace:
            found[axis] = _array(_named(trace[axis], layout.get(f"{axis}axis", {})))
    for error in ERRORS:
        reaches = {name: _array(trace[error][name]) for name in REACHES if trace.get(error, {}).get(name) is not None}
        found |= {error: reaches} if reaches else {}
    return found


def comparable_figure(figure: Mapping[str, Any]) -> list[dict[str, object]]:
    return [comparable_trace(trace, figure["layout"]) for trace in figure["data"]]


def comparable_figures(html: str) -> dict[str, dict[str, Any]]:
    """Return every figure of a page by name: its title, and the traces of each variant by its choices."""
    page = _Page(html)
    pictures = json.loads(page.data)["figures"] if page.data else {}
    return {
        name: {
            "alternative": page.alternatives.get(name, ""),
            "variants": {key: comparable_figure(figure) for key, figure in picture["variants"].items()},
        }
        for name, picture in pictures.items()
    }


def visible_text(html: str) -> str:
    """Return the visible text of a page, with one line per block or table row and collapsed whitespace."""
    return "\n".join(_Page(html).lines) + "\n"


def _named(values: object, axis: Mapping[str, Any]) -> object:
    """Replace positions on an axis by the names of their ticks, unless these are numbers."""
    names = dict(zip(axis.get("tickvals") or (), axis.get("ticktext") or (), strict=False))
    if not isinstance(values, list) or all(_is_number(name) for name in names.values()):
        return values
    return [names.get(value, value) if isinstance(value, int | float | str) else value for value in values]


def _is_number(text: object) -> bool:
    try:
        float(str(text).strip("%").replace("−", "-").replace(",", ""))
    except ValueError:
        return False
    return True


def _array(values: object) -> object:
    """Round the numbers of an array. A long one becomes its shape and a hash."""
    rounded = _rounded(values)
    shape = _shape(rounded)
    if math.prod(shape) <= LONGEST:
        return rounded
    digest = hashlib.sha256(json.dumps(rounded).encode()).hexdigest()
    return f"{'x'.join(map(str, shape))} numbers, sha256 {digest[:16]}"


def _rounded(value: object) -> object:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_rounded(each) for each in value]
    if isinstance(value, float) and math.isfinite(value):
        return float(f"{value:.{DIGITS}g}")
    return value if value is None or isinstance(value, int | str | bool) else str(value)


def _shape(value: object) -> tuple[int, ...]:
    if not isinstance(value, list):
        return ()
    return (len(value), *(_shape(value[0]) if value else ()))


class _Page(HTMLParser):
    """A parsed page: its visible lines, the data of its figures, and their titles."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.data = ""
        self.alternatives: dict[str, str] = {}
        self._line = ""
        self._hidden: list[str] = []
        self._is_data = False
        self.feed(html)
        self.close()
        self._end_line()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if "data-figure" in given and "aria-label" in given:
            self.alternatives[str(given["data-figure"])] = str(given["aria-label"])
        if tag in UNSEEN:
            self._hidden.append(tag)
            self._is_data = given.get("type") == "application/json"
        if tag in BLOCKS or tag == "br":
            self._end_line()
        elif tag in CELLS and self._line.strip():
            self._line += " | "

    def handle_endtag(self, tag: str) -> None:
        if self._hidden and tag == self._hidden[-1]:
            self._hidden.pop()
        if tag in BLOCKS:
            self._end_line()

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self._line += data
        elif self._hidden[-1] == "script" and self._is_data:
            self.data += data

    def _end_line(self) -> None:
        text = " ".join(self._line.split())
        self._line = ""
        if text:
            self.lines.append(text)
