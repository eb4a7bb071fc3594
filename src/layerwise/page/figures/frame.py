"""Figures in Plotly's JSON schema, and their common style.

They are plain dictionaries, because validation by Plotly's Python classes would take longer than the rest of a page.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from layerwise.page.figures.palette import SERIES, SYMBOLS, fade, light_color
from layerwise.page.formatting import format_interval
from layerwise.results.rows import Score

FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif'
CLEAR = "rgba(0,0,0,0)"
REFERENCE = {"line": {"color": light_color("ink"), "dash": "dot", "width": 1.5}, "opacity": 0.6}
LEGEND = {"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0, "font": {"size": 12}}


Trace = Mapping[str, Any]
Shape = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Figure:
    traces: tuple[Trace, ...]
    layout: Mapping[str, Any]

    def payload(self) -> dict[str, Any]:
        return {"data": self.traces, "layout": self.layout}


def scatter(**properties: Any) -> Trace:
    return {"type": "scatter", **_hover(properties)}


def bar(**properties: Any) -> Trace:
    return {"type": "bar", "textposition": "none", **_hover(properties)}


def heatmap(**properties: Any) -> Trace:
    return {"type": "heatmap", "hoverongaps": False, **_hover(properties)}


def _hover(properties: dict[str, Any]) -> dict[str, Any]:
    if "hovertemplate" in properties:
        return properties
    hover = {"hovertemplate": "%{text}<extra></extra>"} if "text" in properties else {"hoverinfo": "skip"}
    return {**properties, **hover}


def horizontal_line(y: float, **properties: Any) -> Shape:
    return {"type": "line", "x0": 0, "x1": 1, "xref": "x domain", "y0": y, "y1": y, "yref": "y", **properties}


def vertical_line(x: float, **properties: Any) -> Shape:
    return {"type": "line", "x0": x, "x1": x, "xref": "x", "y0": 0, "y1": 1, "yref": "y domain", **properties}


def vertical_band(low: float, high: float, color: str) -> Shape:
    edges = {"x0": low, "x1": high, "xref": "x", "y0": 0, "y1": 1, "yref": "y domain"}
    return {"type": "rect", **edges, "fillcolor": color, "line": {"width": 0}, "layer": "below"}


def make_figure(
    height: int,
    traces: Iterable[Trace],
    *,
    x: Mapping[str, Any],
    y: Mapping[str, Any],
    shapes: Sequence[Shape] = (),
    **layout: Any,
) -> Figure:
    """Return a figure in the common style. `x` and `y` change properties of its axes; the value None removes one."""
    return Figure(
        tuple(traces),
        {
            "template": {},
            "height": height,
            "autosize": True,
            "paper_bgcolor": CLEAR,
            "plot_bgcolor": CLEAR,
            "font": {"family": FONT, "size": 13, "color": light_color("ink")},
            "margin": {"l": 48, "r": 12, "t": 8, "b": 40},
            "showlegend": False,
            "hovermode": "closest",
            "modebar": {"bgcolor": CLEAR, "color": light_color("quiet"), "activecolor": light_color("ink")},
            "hoverlabel": {
                "bgcolor": light_color("card"),
                "bordercolor": light_color("quiet"),
                "font": {"family": FONT, "color": light_color("ink"), "size": 13},
                "align": "left",
            },
            "xaxis": _axis(x),
            "yaxis": _axis({"zeroline": True, **y}),
            **({"shapes": shapes} if shapes else {}),
            **layout,
        },
    )


def _axis(more: Mapping[str, Any]) -> dict[str, Any]:
    title = more.get("title")
    font = {"color": light_color("muted"), "size": 13}
    axis = {
        "gridcolor": light_color("grid"),
        "linecolor": light_color("quiet"),
        "zerolinecolor": light_color("zero"),
        "zerolinewidth": 1.5,
        "zeroline": False,
        "tickfont": {"color": light_color("muted"), "size": 12},
        "automargin": True,
        "exponentformat": "power",
        **more,
        "title": {"text": title, "font": font, "standoff": 8} if title else None,
    }
    return {name: value for name, value in axis.items() if value is not None}


def compute_limits(values: Iterable[float | None]) -> tuple[float, float] | None:
    """Return the range of an axis that shows zero and all values, with a margin; None if there are no values.

    >>> compute_limits([1.0, None, 2.0])
    (-0.1, 2.1)
    """
    finite = [value for value in values if value is not None and math.isfinite(value)]
    if not finite:
        return None
    low, high = min(0.0, *finite), max(0.0, *finite)
    air = 0.05 * (high - low) or 1.0
    return low - air, high + air


def common_span(scores: Iterable[Score], *more: float | None) -> tuple[float, float] | None:
    return compute_limits([*more, *(bound for score in scores for bound in (score.value, score.low, score.high))])


def row_axis(names: Sequence[str], **more: Any) -> dict[str, Any]:
    return {
        "range": [len(names) - 0.5, -0.5],
        "tickmode": "array",
        "tickvals": list(range(len(names))),
        "ticktext": [escape(name) for name in names],
        "tickfont": {"color": light_color("ink"), "size": 12},
        "zeroline": False,
        **more,
    }


def error_bars(scores: Iterable[Score], color: str, *, thickness: float = 2, width: int = 0) -> dict[str, Any]:
    ends = [(s.value, s.value if s.low is None else s.low, s.value if s.high is None else s.high) for s in scores]
    return {
        "type": "data",
        "symmetric": False,
        "array": [max(0.0, high - value) for value, _, high in ends],
        "arrayminus": [max(0.0, value - low) for value, low, _ in ends],
        "color": color,
        "thickness": thickness,
        "width": width,
    }


def fill_between(x: Sequence[float], low: Sequence[float], high: Sequence[float], color: str, **more: Any) -> Trace:
    edges = {"x": [*x, *reversed(x)], "y": [*high, *reversed(low)]}
    return scatter(**edges, fill="toself", fillcolor=color, line={"width": 0}, mode="lines", **more)


def color_scale(colors: Sequence[str]) -> list[list[float | str]]:
    return [[index / (len(colors) - 1), color] for index, color in enumerate(colors)]


def series_style(slot: int) -> tuple[str, str, str]:
    color = SERIES[slot % len(SERIES)][0]
    return color, fade(color, 0.14), SYMBOLS[slot % len(SYMBOLS)]


def interval(score: Score, *, signed: bool = False) -> str:
    return format_interval(score.value, score.low, score.high, signed=signed)
