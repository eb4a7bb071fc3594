"""Edges of a learned wiring: the size of each weight against what cutting it alone costs."""

from __future__ import annotations

import re
from collections.abc import Mapping

from layerwise.report.alpha import source_name
from layerwise.report.figures.figure import Figure, scatter
from layerwise.report.figures.frame import framed
from layerwise.report.notation import between, tidy
from layerwise.report.palette import depth_colour, faded, light
from layerwise.report.wiring import EMBEDDING
from layerwise.results.rows import Score

EDGE = re.compile(r"(?P<reader>\d+|out)<-(?P<source>\d+)")
HEIGHT = 400


def edge_scatter(weights: Mapping[str, Score], effects: Mapping[str, Score], *, depth: int) -> Figure:
    """A dot an edge, coloured by the layer it reads as in the maps; grey for the embedding.

    Both maps are keyed by edge, `reader<-source`; an edge that could not be cut has no effect and no dot.
    """
    found = [(edge, match) for edge in effects if edge in weights and (match := EDGE.fullmatch(edge))]
    scores = [effects[edge] for edge, _ in found]
    dots = scatter(
        x=[abs(weights[edge].value) for edge, _ in found],
        y=[score.value for score in scores],
        error_y={
            "type": "data",
            "symmetric": False,
            "array": [0.0 if s.high is None else max(0.0, s.high - s.value) for s in scores],
            "arrayminus": [0.0 if s.low is None else max(0.0, s.value - s.low) for s in scores],
            "color": faded(light("muted"), 0.45),
            "thickness": 1.2,
            "width": 0,
        },
        mode="markers",
        marker={
            "color": [_colour(int(match["source"]), depth) for _, match in found],
            "size": 9,
            "line": {"width": 1, "color": light("card")},
        },
        text=[_told(match, weights[edge], effects[edge]) for edge, match in found],
        hovertemplate="%{text}<extra></extra>",
    )
    return framed(
        HEIGHT,
        [dots],
        x={"title": "size of the weight"},
        y={"title": "nats lost by cutting it alone"},
        margin={"l": 48, "r": 16, "t": 14, "b": 40},
    )


def _colour(source: int, depth: int) -> str:
    return EMBEDDING if source == 0 else depth_colour(source - 1, depth)


def _told(match: re.Match[str], weight: Score, effect: Score) -> str:
    reader = "the output" if match["reader"] == "out" else f"layer {match['reader']}"
    shown = between(effect.value, effect.low, effect.high, signed=True)
    return f"<b>{reader} reads {source_name(int(match['source']))}</b><br>weight {tidy(weight.value)}<br>{shown} nats"
