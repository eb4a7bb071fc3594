"""A figure as plain data: traces and layout under the names of Plotly's JSON schema, which plotly.js on the page reads.

The Python classes of Plotly check every property, which takes most of the time of a page that has hundreds of figures.
The tests ask that check of every kind of page instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Trace = Mapping[str, Any]
"""What is drawn from data: a `type` and the properties that it has."""
Shape = Mapping[str, Any]
"""What is drawn across the whole figure: a line or a band."""


@dataclass(frozen=True, slots=True)
class Figure:
    """Traces, drawn one over another, in a layout.

    `plotly.graph_objects.Figure(figure.payload())` checks it, and shows it alone.
    """

    traces: tuple[Trace, ...]
    layout: Mapping[str, Any]

    def payload(self) -> dict[str, Any]:
        """The figure as plotly.js takes it: dicts, sequences, texts and numbers, of which some may not be finite."""
        return {"data": self.traces, "layout": self.layout}


def scatter(**properties: Any) -> Trace:
    """Points, lines between them, or the area that a line encloses; the pointer shows `text`, or else nothing."""
    return {"type": "scatter", **_hover(properties)}


def bar(**properties: Any) -> Trace:
    """A bar for each position; the pointer shows `text`."""
    return {"type": "bar", "textposition": "none", **_hover(properties)}


def heatmap(**properties: Any) -> Trace:
    """A grid of cells whose colours are numbers; the pointer shows `text`, over an empty cell nothing."""
    return {"type": "heatmap", "hoverongaps": False, **_hover(properties)}


def _hover(properties: dict[str, Any]) -> dict[str, Any]:
    if "hovertemplate" in properties:
        return properties
    shown = {"hovertemplate": "%{text}<extra></extra>"} if "text" in properties else {"hoverinfo": "skip"}
    return {**properties, **shown}


def level_line(y: float, **properties: Any) -> Shape:
    """A line at one height, from the left edge to the right."""
    return {"type": "line", "x0": 0, "x1": 1, "xref": "x domain", "y0": y, "y1": y, "yref": "y", **properties}


def upright_line(x: float, **properties: Any) -> Shape:
    """A line at one position, from the lower edge to the upper."""
    return {"type": "line", "x0": x, "x1": x, "xref": "x", "y0": 0, "y1": 1, "yref": "y domain", **properties}


def upright_band(low: float, high: float, colour: str) -> Shape:
    """What lies between two positions, from the lower edge to the upper, coloured below all traces."""
    edges = {"x0": low, "x1": high, "xref": "x", "y0": 0, "y1": 1, "yref": "y domain"}
    return {"type": "rect", **edges, "fillcolor": colour, "line": {"width": 0}, "layer": "below"}


def square(low: float, high: float, **properties: Any) -> Shape:
    """A frame around what lies between two positions on both axes."""
    edges = {"x0": low, "x1": high, "xref": "x", "y0": low, "y1": high, "yref": "y"}
    return {"type": "rect", **edges, **properties}
